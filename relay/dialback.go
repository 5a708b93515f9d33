package relay

import (
	"context"
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
	if nodeID == s.nodeID || !s.shared {
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
	if err := s.stillCurrent(r.Context(), d); err != nil {
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
// ticket was taken, with the dial's: a check before a write is not enough.
func (s *Server) stillCurrent(ctx context.Context, d *dial) error {
	h := s.registry.acquire(d.hostID)
	defer s.registry.release(h)
	att, err := s.current(ctx, h)
	switch {
	case err == nil && (att.ID == d.att.ID && att.Generation == d.att.Generation || !guardTicketFence):
		return nil
	case err == nil:
		return errReplaced
	case errors.Is(err, store.ErrNotFound):
		return errGone
	case s.cfg.StoreOutage == ServeLocal:
		return nil // only a host of this node was dialed: the stated weakening of I1
	}
	return ErrStoreUnavailable
}

func (s *Server) unknownTicket(w http.ResponseWriter) {
	s.stats.failed("unknown_ticket")
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(http.StatusNotFound)
	w.Write(errorBody(Failure{Code: "unknown_ticket", Message: "unknown ticket"}))
}
