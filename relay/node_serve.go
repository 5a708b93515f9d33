package relay

import (
	"crypto/hmac"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/transport"
)

// serveNode serves the calls of other nodes; path is what follows the mount
// point. Nobody else is let in.
func (s *Server) serveNode(w http.ResponseWriter, r *http.Request, path string) {
	unbind(w)
	uri := path
	if r.URL.RawQuery != "" {
		uri += "?" + r.URL.RawQuery
	}
	body, whole := s.readNodeBody(w, r)
	want := s.nodeMAC(r.Method, s.nodeID, s.incarnation, uri, body)
	if !whole || !hmac.Equal([]byte(r.Header.Get(nodeHeader)), []byte(want)) {
		s.stats.failed("node_unauthorized")
		s.boundReply(w)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	switch strings.TrimPrefix(path, "/node/") {
	case "hop":
		r.Header.Del(nodeHeader)
		s.takeDialBack(w, r, r.URL.Query().Get("via"))
	case "dial":
		handleNode(s, w, body, s.onNodeDial)
	case "outcome":
		handleNode(s, w, body, s.onNodeOutcomes)
	case "cancel":
		handleNode(s, w, body, s.onNodeCancel)
	case "retire":
		handleNode(s, w, body, s.onNodeRetire)
	case "retired":
		handleNode(s, w, body, s.onNodeRetired)
	case "revoke":
		handleNode(s, w, body, s.onNodeRevoke)
	case "store":
		s.writeJSON(w, http.StatusOK, nodeStore{Store: !s.outage.out()})
	default:
		s.boundReply(w)
		http.NotFound(w, r)
	}
}

// readNodeBody reads the body of a call, and reports whether that is all of it:
// anybody may begin a call, and nobody may hold it open, nor have anything kept who
// does not even claim to be a node.
func (s *Server) readNodeBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	rc := http.NewResponseController(w)
	rc.SetReadDeadline(time.Now().Add(s.cfg.NodeTimeout))
	var body []byte
	var err error
	claims := r.Header.Get(nodeHeader) != ""
	if claims {
		body, err = io.ReadAll(io.LimitReader(r.Body, maxNodeBody+1))
	}
	if !claims || err != nil || len(body) > maxNodeBody {
		rc.EnableFullDuplex()
		closeAfterReply(w)
		rc.SetReadDeadline(time.Unix(1, 0))
		return nil, false
	}
	rc.SetReadDeadline(time.Time{})
	return body, true
}

// handleNode decodes a call, obeys it, and encodes its answer.
func handleNode[In, Out any](s *Server, w http.ResponseWriter, body []byte, f func(In) Out) {
	var in In
	if err := json.Unmarshal(body, &in); err != nil {
		s.boundReply(w)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.writeJSON(w, http.StatusOK, f(in))
}

type nothing struct{}

// onNodeDial sends a dial for another node, on exactly the socket that it named.
// A ticket of this node's own is not another's to dial with.
func (s *Server) onNodeDial(in nodeDial) nodeDialed {
	c := s.local(in.HostID)
	waiting, ok := s.tickets.check(in.Ticket, in.HostID)
	switch {
	case c == nil, !ok, waiting == s.nodeID:
		return nodeDialed{notMineResult}
	case c.att.Generation > in.Generation:
		// The caller has read the Store before the claim; or the Store has lost
		// the claim, and names the earlier socket for as long as nobody says so.
		s.confirmSoon(c)
		return nodeDialed{retiredResult}
	case c.att.ID != in.ID || c.att.Generation != in.Generation:
		return nodeDialed{notMineResult}
	}
	d := &dial{
		ticket: in.Ticket, hostID: in.HostID, att: c.att.Ref(), streamID: in.StreamID,
		spec: dialSpec{kind: in.Kind, path: in.Path, query: in.Query, service: in.Service, proto: in.Proto},
	}
	d.deliver = func(o outcome) {
		c.forget(d, false)
		s.postOutcome(in.Waiting, d, o)
	}
	if !c.sendDial(d) {
		return nodeDialed{retiredResult}
	}
	// The dial-back goes to the waiting node, which has no need to say so.
	d.expire(s.cfg.DialTimeout, func() { c.forget(d, false) })
	return nodeDialed{dialedResult}
}

// confirmSoon has the Store write again what it may have lost of c. It waits for
// that, but not as long as a Store that hangs may take: the node that has called
// would take this one for dead.
func (s *Server) confirmSoon(c *controlConn) {
	done := make(chan struct{})
	confirm := func() {
		defer close(done)
		s.pinger.confirm([]*controlConn{c}, nil)
	}
	if !s.spawn(confirm) {
		return
	}
	t := time.NewTimer(s.cfg.NodeTimeout / 2)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

// postOutcome tells the node that waits how a dial of its ended.
func (s *Server) postOutcome(incarnation string, d *dial, o outcome) {
	out := nodeOutcome{HostID: d.hostID, Ticket: d.ticket, Result: outcomeGone}
	if refused, ok := o.err.(*RefusedError); ok {
		out.Result, out.Status, out.Reason = outcomeRefused, refused.Status, refused.Reason
	} else if o.err == errReplaced {
		out.Result = outcomeRetired
	}
	s.tellProcess(incarnation, "/node/outcome", nodeOutcomes{[]nodeOutcome{out}})
}

func (s *Server) onNodeOutcomes(in nodeOutcomes) nothing {
	for _, out := range in.Outcomes {
		d := s.tickets.take(out.Ticket)
		if d == nil {
			continue // it has been decided meanwhile
		}
		switch out.Result {
		case outcomeRefused:
			d.settle(outcome{err: refusedElsewhere(out)})
		case outcomeRetired:
			d.settle(outcome{err: errReplaced})
		default:
			d.settle(outcome{err: errGone})
		}
	}
	return nothing{}
}

// refusedElsewhere is a refusal that another node has passed on. A number that is
// no status must not reach a client from there either.
func refusedElsewhere(out nodeOutcome) *RefusedError {
	f := transport.Refuse{Status: out.Status, Reason: transport.CutReason(out.Reason)}
	clean, _ := transport.Decode(transport.Encode(f))
	f, _ = clean.(transport.Refuse)
	return &RefusedError{f.Status, f.Reason}
}

// onNodeCancel forgets a dial of another node: of one that waits here the client
// is here too.
func (s *Server) onNodeCancel(in nodeCancel) nothing {
	if c := s.local(in.HostID); c != nil {
		if d := c.lookup(in.Ticket); d != nil && d.result == nil {
			d.cancelExpiry()
			c.forget(d, true)
		}
	}
	return nothing{}
}

// onNodeRetire closes a socket that a claim elsewhere has retired.
func (s *Server) onNodeRetire(in nodeRetire) nothing {
	if c := s.local(in.HostID); c != nil && c.att.ID == in.ID && c.att.Generation == in.Generation {
		c.replaced()
	}
	return nothing{}
}

// onNodeRetired has dials that wait for an older socket issued anew: the node
// of that socket may be unable to say so.
func (s *Server) onNodeRetired(in nodeRetired) nothing {
	socket := store.Ref{HostID: in.HostID, ID: in.ID, Generation: in.Generation}
	if h := s.registry.peek(in.HostID); h != nil {
		h.dropBelow(socket)
		s.registry.release(h)
	}
	for _, d := range s.tickets.takeOlder(socket) {
		d.settle(outcome{err: errReplaced})
	}
	return nothing{}
}

// onNodeRevoke ends what is here of a host. The caller does not wait for the
// Store.
func (s *Server) onNodeRevoke(in nodeRevoke) nothing {
	s.spawn(func() { s.revokeHere(in.HostID, in.Reason) })
	return nothing{}
}

// retireElsewhere tells the other nodes of a claim: the one that holds the
// earlier socket closes it, and whoever waits for it dials anew. Should a call
// be lost, the holder learns of it at its next ping.
func (s *Server) retireElsewhere(current, previous store.Attachment) {
	if previous.Incarnation != s.incarnation {
		s.tellProcess(previous.Incarnation, "/node/retire", nodeRetire{previous.HostID, previous.ID, previous.Generation})
	}
	s.tellAll("/node/retired", nodeRetired{current.HostID, current.ID, current.Generation})
}
