package relay

import (
	"net/http"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/transport"
)

// NodeMAC lets tests see what the authentication of node calls binds.
var NodeMAC = (*Server).nodeMAC

// ForgeTicket makes a ticket as whoever has the nodes' key can.
func (s *Server) ForgeTicket(nodeID, hostID string) string {
	t := tickets{nodeID: nodeID, key: s.cfg.Node.Key}
	head := nodeID + ".AAAAAAAAAAAAAAAAAAAAAA"
	return head + "." + t.mac(head, hostID)
}

// CheckTicket is what a dial-back's ticket is first put to.
func (s *Server) CheckTicket(ticket, hostID string) (nodeID string, ok bool) {
	return s.tickets.check(ticket, hostID)
}

// Authorize is what every request of a host or a client passes.
var Authorize = (*Server).authorize

// CutCookies, PathOf, PathHostID and FirstSubprotocol read what anybody may send.
var (
	CutCookies       = cutCookies
	PathOf           = pathOf
	PathHostID       = pathHostID
	FirstSubprotocol = firstSubprotocol
)

// NodeTransport makes the calls between nodes.
func NodeTransport(s *Server) *http.Transport { return s.nodeClient.Transport.(*http.Transport) }

// SettledMayGo asks whether a stream that its spare, over conn, has won may be
// dialed at another process of the host.
func SettledMayGo(conn transport.Conn) bool {
	o := &opening{sp: &spare{conn: conn}, settled: make(chan struct{})}
	o.settle(conn, store.Attachment{}, "")
	return o.mayGoTo(store.Attachment{Instance: "another"})
}

// HopByHop are the headers of one hop.
var HopByHop = hopByHop
