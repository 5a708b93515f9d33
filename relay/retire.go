package relay

import (
	"context"
	"errors"
	"log/slog"
	"strconv"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/transport"
)

// leave moves the socket to state to, takes it out of routing and settles its
// pending dials with err. It returns the state before.
func (c *controlConn) leave(to controlState, err error) (was controlState) {
	was, removed, pending := c.hub.leave(c, to)
	for _, d := range pending {
		c.srv.tickets.take(d.ticket)
		d.settle(outcome{err: err})
	}
	if removed {
		c.srv.linger(c.hub)
	}
	return was
}

// replaced retires c because a newer socket of its host took over: the Store
// has marked it already.
func (c *controlConn) replaced() {
	if c.leave(stateRetired, errReplaced) < stateRetired {
		c.endReplaced()
	}
}

// unnamed retires c because the Store does not name it any more: a newer socket
// took over, or its host was revoked and the news of that is still on the way.
func (c *controlConn) unnamed() {
	if c.leave(stateRetired, errReplaced) < stateRetired && !c.srv.spawn(c.closeUnnamed) {
		c.conn.Close(transport.CloseRestart, "node is restarting")
	}
}

// closeUnnamed tells the host which of the two it is: it comes back at once after
// one, and not after the other.
func (c *controlConn) closeUnnamed() {
	ctx, cancel := c.srv.storeContext()
	defer cancel()
	seen, err := c.srv.cfg.Store.LastSeen(ctx, []string{c.hub.hostID})
	if err == nil && seen[c.hub.hostID].Reason == store.ReasonRevoked {
		c.conn.Close(transport.CloseForbidden, "revoked")
		c.detachedHook(store.ReasonRevoked)
		return
	}
	c.endReplaced()
}

func (c *controlConn) endReplaced() {
	c.srv.stats.replaced.Add(1)
	c.conn.Close(transport.CloseReplaced, "replaced by a newer connection")
	c.detachedHook(store.ReasonReplaced)
}

// retire takes the socket out of routing for ever: the mark is written to the
// Store before the socket is closed.
func (c *controlConn) retire(why store.Reason, code transport.CloseCode, reason string) {
	c.retireWithin(context.Background(), why, code, reason)
}

// retireWithin is retire with a bound of the caller's for the call of the Store.
func (c *controlConn) retireWithin(ctx context.Context, why store.Reason, code transport.CloseCode, reason string) {
	was := c.leave(stateRetired, errGone)
	if was >= stateRetired {
		return
	}
	if why == store.ReasonStale {
		c.srv.stats.stale.Add(1)
	}
	if was == stateCurrent && guardRetiredMark {
		c.owed(why, c.srv.retireInStore(ctx, c.att.Ref(), why))
	}
	c.conn.Close(code, reason)
	if was == stateCurrent { // else it has never been attached
		c.detachedHook(why)
	}
}

// retireInStore writes a mark.
func (s *Server) retireInStore(ctx context.Context, ref store.Ref, why store.Reason) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
	defer cancel()
	return s.cfg.Store.Retire(ctx, ref, why)
}

// ended cleans up after the socket's end. A late end of a retired socket
// touches nothing but itself.
func (c *controlConn) ended(err error) {
	was := c.leave(stateEnded, errGone)
	c.conn.CloseNow()
	if was == stateCurrent {
		c.detach()
		c.detachedHook(store.ReasonGone)
		c.srv.log.Info("host left", slog.String("host", c.hub.hostID), slog.Any("reason", endReason(err)))
	}
	c.srv.dismissHost(c.hub)
	c.srv.registry.release(c.hub)
	<-c.conn.Done() // its closing goroutines, CloseTimeout at most
}

// detach tells the Store that the socket ended.
func (c *controlConn) detach() { c.owed(store.ReasonGone, c.srv.disown(c.att.Ref())) }

// owed takes the outcome of writing the socket's mark: if that failed, the Store
// may go on naming it until it is made good.
func (c *controlConn) owed(why store.Reason, err error) {
	if failed(err) {
		c.srv.outage.owe(debt{c.att.Ref(), why})
	}
	c.srv.outage.observe(err)
}

func (c *controlConn) expired() {
	c.retire(store.ReasonGone, transport.CloseUnauthorized, "credentials expired")
}

func (c *controlConn) detachedHook(why store.Reason) {
	if h := c.srv.cfg.Hooks.HostDetached; h != nil {
		h(c.att, why)
	}
}

// endReason is the close code and reason of err, for a log.
func endReason(err error) string {
	var ce *transport.CloseError
	if errors.As(err, &ce) {
		return strconv.Itoa(int(ce.Code)) + " " + ce.Reason
	}
	return "connection lost"
}
