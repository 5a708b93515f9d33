package relay

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/transport"
)

// errSocketEnded: the control socket ended before it was claimed.
var errSocketEnded = errors.New("relay: control socket ended before it was attached")

// errOvertaken: a socket that came later was attached before.
var errOvertaken = errors.New("relay: a newer connection took over")

// attach claims the socket and makes it its host's current one.
func (c *controlConn) attach() {
	if !c.mayFlap() {
		return
	}
	claimed, err := c.claim()
	switch {
	case errors.Is(err, store.ErrRetired):
		// A newer connection of the same agent is there already.
		c.close(transport.CloseReplaced, "a newer connection took over")
		return
	case errors.Is(err, errOvertaken):
		c.detach()
		c.close(transport.CloseReplaced, "a newer connection took over")
		return
	case err != nil:
		c.detach()
		c.close(transport.CloseOffline, "store unavailable")
		return
	}
	c.att = claimed.Current
	var hello []byte
	if c.att.Proto >= 3 {
		hello = transport.Encode(transport.Hello{Node: c.srv.nodeID, Generation: c.att.Generation})
	}
	old, ok := c.hub.install(c, hello)
	if !ok {
		// The claim has retired a predecessor all the same, which may live. Nothing
		// happens to a successor.
		if previous := claimed.Previous; previous.ID != "" {
			if here := c.hub.here(); here != nil && here.att.Ref() == previous.Ref() {
				here.replaced()
			}
			c.srv.retireElsewhere(claimed.Current, previous)
		}
		if c.hub.revocations() != c.revoked {
			c.owed(store.ReasonRevoked, c.srv.retireInStore(context.Background(), c.att.Ref(), store.ReasonRevoked))
			c.close(transport.CloseForbidden, "revoked")
			return
		}
		c.detach()
		c.close(transport.CloseReplaced, "a newer connection took over")
		return
	}
	c.hub.dropBelow(c.att.Ref())
	previous := claimed.Previous
	if previous.ID == "" && old != nil {
		previous = old.att // which the Store has lost
	}
	if previous.ID != "" {
		if previous.Instance == "" || previous.Instance != c.att.Instance {
			c.tookOver() // else the process itself has come back
		}
		c.srv.retireElsewhere(claimed.Current, previous)
	}
	if old != nil {
		old.replaced()
	}
	c.begin(hello != nil)
	c.srv.log.Info("host attached", slog.String("host", c.hub.hostID), slog.Uint64("generation", c.att.Generation), slog.Int("proto", c.att.Proto))
	if h := c.srv.cfg.Hooks.HostAttached; h != nil {
		h(c.att)
	}
	c.attachedLate()
}

// begin starts what only a current socket has: hello, timers, early pings.
func (c *controlConn) begin(hello bool) {
	c.mu.Lock()
	if c.state != stateCurrent {
		c.mu.Unlock()
		return
	}
	c.stale = time.AfterFunc(c.srv.cfg.StaleAfter, func() { c.srv.spawn(c.silent) })
	// A Store that fails over may lose what was written last: a claim as well. No
	// sign of it but a ping that says so, and the host's own may be long to come.
	time.AfterFunc(c.srv.cfg.NodeBeat, func() { c.srv.pinger.add(c, 0, 0) })
	early := c.early
	start := hello && !c.sending
	c.sending = c.sending || start
	c.mu.Unlock()
	if start {
		c.startSending()
	}
	for words, n := range early {
		if n > 0 {
			c.srv.pinger.add(c, words, n)
		}
	}
}

// close closes a socket that never became current.
func (c *controlConn) close(code transport.CloseCode, reason string) {
	c.leave(stateRetired, errGone)
	c.conn.Close(code, reason)
}

// disown detaches a socket whose claim has an unknown outcome: if the Store
// knows it, it knows its generation.
func (s *Server) disown(ref store.Ref) error {
	ctx, cancel := s.storeContext()
	defer cancel()
	if ref.Generation == 0 {
		att, err := s.cfg.Store.Current(ctx, ref.HostID)
		switch {
		case errors.Is(err, store.ErrNotFound) || err == nil && att.ID != ref.ID:
			return nil
		case err != nil:
			return err
		}
		ref = att.Ref()
	}
	return s.cfg.Store.Detach(ctx, ref)
}

// claim asks the Store, again and again while the socket is open: a backend
// never retries by itself. Claim is idempotent for one socket, as long as no other
// one of the host was claimed: then the socket is not claimed again, for it may
// be one that the host has left.
func (c *controlConn) claim() (store.Claimed, error) {
	s := c.srv
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.ClaimTimeout)
	defer cancel()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		cctx, ccancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
		claimed, err := s.cfg.Store.Claim(cctx, c.att, s.cfg.RowTTL)
		ccancel()
		if err == nil || errors.Is(err, store.ErrRetired) || errors.Is(err, store.ErrInvalid) {
			return claimed, err
		}
		s.outage.observe(err)
		select {
		case <-c.conn.Done():
			return claimed, errSocketEnded
		case <-ctx.Done():
			return claimed, err
		case <-time.After(wait):
		}
		if here := c.hub.here(); here != nil && here.nth > c.nth {
			return claimed, errOvertaken
		}
	}
}

// tookOver counts a replacement by another process and reports a host that flaps.
func (c *controlConn) tookOver() {
	s := c.srv
	n, report := c.hub.noteReplaced(time.Now())
	if report {
		s.log.Warn("host flaps: several processes use one host id", slog.String("host", c.hub.hostID), slog.Int("replacements", n))
		if h := s.cfg.Hooks.HostFlapping; h != nil {
			h(c.hub.hostID, n)
		}
	}
}

// mayFlap keeps two live hosts with one ID from replacing each other for ever:
// once the host has been replaced too often, a newcomer must find the incumbent
// dead. It reports whether to go on; if not, the newcomer is held for a while
// and then closed, so that it comes back slowly.
func (c *controlConn) mayFlap() bool {
	inc := c.hub.incumbent(c, time.Now())
	if inc == nil || !inc.alive(flapProbe) {
		return true
	}
	select {
	case <-time.After(flapHold):
	case <-c.conn.Done():
	case <-c.srv.ctx.Done():
	}
	c.close(transport.CloseReplaced, "another live process uses this host id")
	return false
}

// alive sends a protocol ping and reports whether its pong came within d.
func (c *controlConn) alive(d time.Duration) bool {
	ctx, cancel := context.WithTimeout(c.srv.ctx, d)
	defer cancel()
	return c.conn.Ping(ctx) == nil
}

// silent retires a socket whose host has not pinged for StaleAfter.
func (c *controlConn) silent() {
	c.srv.log.Info("host is stale", slog.String("host", c.hub.hostID))
	c.retire(store.ReasonStale, transport.CloseStale, "no ping for too long")
}

// suspect is called when a dial was not acknowledged in time.
func (c *controlConn) suspect() {
	c.mu.Lock()
	start := c.state == stateCurrent && !c.probing
	c.probing = c.probing || start
	c.mu.Unlock()
	if start {
		c.srv.spawn(c.probe)
	}
}

// probe retires the socket if it does not answer a protocol ping either: its
// host is dead, however open the socket looks.
func (c *controlConn) probe() {
	ok := c.alive(c.srv.cfg.AckTimeout)
	c.mu.Lock()
	c.probing = false
	c.mu.Unlock()
	if !ok {
		c.srv.log.Info("host does not answer", slog.String("host", c.hub.hostID))
		c.retire(store.ReasonStale, transport.CloseStale, "no answer to a dial and a ping")
	}
}
