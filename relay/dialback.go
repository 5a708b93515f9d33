package relay

import (
	"errors"
	"net/http"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/transport"
)

// serveDialBack takes a host's data socket. The ticket is the credential: a bad
// one gets a plain 404 before the upgrade.
func (s *Server) serveDialBack(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	nodeID, ok := s.tickets.check(q.Get("ticket"), q.Get("hostId"))
	if !ok || !isWebSocket(r) {
		s.unknownTicket(w)
		return
	}
	if nodeID == s.nodeID && (!s.nodes.isUsurped() || s.tickets.waits(q.Get("ticket"))) || !s.shared {
		s.takeDialBack(w, r, "")
		return
	}
	if n, ok := s.nodes.byID(nodeID); ok && s.callable(n) {
		s.hop(w, r, n)
		return
	}
	// Not a 404, after which the host would give it up: a node that is not in
	// the table may have lost its lease with the Store's last writes, and wait.
	s.writeError(w, r, "", ErrNodeUnreachable)
}

// takeDialBack takes a dial-back whose ticket is this node's own. via is the
// node through which it passes, or empty.
func (s *Server) takeDialBack(w http.ResponseWriter, r *http.Request, via string) {
	q := r.URL.Query()
	if _, ok := s.tickets.check(q.Get("ticket"), q.Get("hostId")); !ok || !isWebSocket(r) {
		s.unknownTicket(w)
		return
	}
	d := s.tickets.take(q.Get("ticket"))
	if d == nil || d.isSettled() {
		s.unknownTicket(w)
		return
	}
	if err := s.stillCurrent(d); err != nil {
		d.settle(outcome{err: err})
		s.unknownTicket(w)
		return
	}
	conn, err := s.acceptWS(w, r, "")
	if err != nil {
		d.settle(outcome{err: ErrStreamClosed})
		return
	}
	s.stats.dialBacks.Add(1)
	if !d.settle(outcome{conn: conn, via: via}) {
		conn.Close(transport.CloseUnknown, "nobody waits any more")
	}
}

// stillCurrent compares the host's generation in the Store, read after the
// ticket was taken, with the dial's: a check before a write is not enough. A host
// that gives the dial-back up meanwhile says nothing of the Store.
func (s *Server) stillCurrent(d *dial) error {
	h := s.registry.acquire(d.hostID)
	defer s.registry.release(h)
	for asserted := false; ; asserted = true {
		att, err := s.current(s.ctx, h)
		here := h.here()
		if here != nil && here.att.Ref() != d.att {
			here = nil // the dial went to another socket
		}
		switch {
		case err == nil && (att.Ref() == d.att || !guardTicketFence):
			return nil
		case here != nil && !asserted && lost(here, att, err):
			s.pinger.confirm([]*controlConn{here}, nil)
			continue
		case err == nil:
			return errReplaced
		case errors.Is(err, store.ErrNotFound):
			return errGone
		case s.cfg.StoreOutage == ServeLocal && here != nil:
			return nil // the stated weakening of I1, for hosts of this node
		}
		return ErrStoreUnavailable
	}
}

// lost reports whether the Store has lost the row of a socket that is here: it
// names none, or an earlier one.
func lost(here *controlConn, att store.Attachment, err error) bool {
	return errors.Is(err, store.ErrNotFound) || err == nil && here.att.Generation > att.Generation
}

func (s *Server) unknownTicket(w http.ResponseWriter) {
	s.stats.failed("unknown_ticket")
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	s.boundReply(w)
	w.WriteHeader(http.StatusNotFound)
	w.Write(errorBody(Failure{Code: "unknown_ticket", Message: "unknown ticket"}))
}
