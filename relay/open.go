package relay

import (
	"context"
	"errors"
	"time"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/transport"
)

// Outcomes of one issue of a dial that end neither the open nor the stream.
var (
	errReplaced = errors.New("relay: the dial's socket was replaced")
	errGone     = errors.New("relay: the dial's socket went away")
	// errNotMine: the node that the Store named does not have the socket: not
	// yet, or not any more.
	errNotMine = errors.New("relay: the host's node does not have its socket")
)

// chooseSpec says what to ask of the host that was found; it is called again
// for a successor, which may speak another protocol.
type chooseSpec func(att store.Attachment) (dialSpec, error)

// route is where a dial goes: a control socket here, or the node that holds it.
type route struct {
	att  store.Attachment
	here *controlConn // nil: elsewhere
	node store.Node

	// awaited is when this open began to wait for the host because that node
	// had refused a call; zero if it has not waited.
	awaited time.Time
}

// attempt is what an open has learnt from its issue before.
type attempt struct {
	err  error     // errReplaced, errGone; nil before the first issue
	id   string    // the attachment that was dialed
	gone time.Time // since when the open has waited for it; zero: it has not
}

// opened is a data socket, whose it is, and the node through which it passes.
type opened struct {
	conn    transport.Conn
	att     store.Attachment
	via     string   // empty: it came here directly
	opening *opening // conn, if it is that of a spare; else nil
}

// await waits until the agent has opened the stream. It fails as open does.
func (o *opened) await(ctx context.Context) error {
	if o.opening == nil {
		return nil
	}
	if err := o.opening.await(ctx); err != nil {
		return err
	}
	*o = opened{conn: o.opening.conn, att: o.opening.att, via: o.opening.via}
	return nil
}

// open is the one way to a host: it finds the current control socket, and gets
// a data socket by a dial, or takes a spare. A socket that was dialed for tcp
// has been opened by the agent when open returns; that of a spare is an opening,
// of which opened.await tells the outcome.
//
// It fails with ErrHostOffline, ErrHostGone, ErrReplaced, ErrNoDialBack,
// ErrNodeUnreachable, ErrRefused, ErrHostLimit, ErrStoreUnavailable,
// ErrStreamClosed, an error of choose, or errClientGone when ctx ends; all
// within DialTimeout.
func (s *Server) open(ctx context.Context, hub *hub, streamID string, choose chooseSpec) (opened, error) {
	return s.openBy(ctx, hub, streamID, choose, true)
}

// openBy is open, with or without spares.
func (s *Server) openBy(ctx context.Context, hub *hub, streamID string, choose chooseSpec, spares bool) (opened, error) {
	if err := hub.beginDial(s.cfg.MaxPendingDials); err != nil {
		return opened{}, err
	}
	defer hub.endDial()
	stream := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.DialTimeout, ErrNoDialBack)
	defer cancel()
	var last attempt
	var missed time.Time // when a node first did not have the socket
	for issues := 0; issues < maxIssues; {
		to, err := s.locate(ctx, hub, last)
		if err != nil {
			return opened{}, err
		}
		spec, err := choose(to.att)
		if err != nil {
			return opened{}, err
		}
		if spares && spec.kind == transport.KindTCP {
			if sp := hub.spares.take(to.att.Ref()); sp != nil {
				if o := s.openOn(stream, sp, streamID, spec, choose); o != nil {
					s.replenish(hub, to)
					return opened{conn: o, att: to.att, via: sp.via, opening: o}, nil
				}
			}
		}
		o, err := s.dialOnce(ctx, to, streamID, spec)
		switch {
		case err == nil:
			if spec.kind == transport.KindTCP {
				err = awaitOpened(ctx, o.conn)
			}
			if err == nil {
				s.replenish(hub, to)
			}
			return opened{conn: o.conn, att: to.att, via: o.via}, err
		case errors.Is(err, errNotMine):
			if missed.IsZero() {
				missed = time.Now()
			}
			if time.Since(missed) >= s.cfg.ReconnectGrace {
				return opened{}, ErrHostGone
			}
			if wait(ctx, pollInterval) != nil {
				return opened{}, openEnded(ctx)
			}
			last = attempt{err: errGone} // the same socket may be dialed again
			continue
		case errors.Is(err, errReplaced), errors.Is(err, errGone):
			last = attempt{err, to.att.ID, to.awaited}
		case (errors.Is(err, ErrRefused) || errors.Is(err, ErrNodeUnreachable)) && s.hasMoved(ctx, hub, to.att):
			// An agent that is elsewhere already refuses what comes late, and
			// its former node may be unable to say so.
			last = attempt{err: errReplaced, id: to.att.ID}
		default:
			return opened{}, err
		}
		issues++
	}
	return opened{}, last.offline()
}

// hasMoved reports whether the host has a newer socket than att.
func (s *Server) hasMoved(ctx context.Context, hub *hub, att store.Attachment) bool {
	now, err := s.current(ctx, hub)
	return err == nil && before(att.Ref(), now.Ref())
}

// offline is the typed error for a host that cannot be found.
func (a attempt) offline() error {
	switch {
	case errors.Is(a.err, errGone):
		return ErrHostGone
	case errors.Is(a.err, errReplaced):
		return ErrReplaced
	}
	return ErrHostOffline
}

// dialOnce issues one ticket on one control socket and waits for its outcome.
func (s *Server) dialOnce(ctx context.Context, to route, streamID string, spec dialSpec) (outcome, error) {
	d := s.tickets.issue(to.att, streamID, spec)
	if err := s.sendDial(ctx, to, d); err != nil {
		s.tickets.take(d.ticket)
		if !d.settle(outcome{err: err}) { // it was decided while the call was under way
			o := <-d.result
			return o, o.err
		}
		if to.here == nil && !errors.Is(err, errGone) && !errors.Is(err, errReplaced) && !errors.Is(err, errNotMine) {
			s.tell(to.node, "/node/cancel", nodeCancel{d.hostID, d.ticket}) // it may have been sent
		}
		return outcome{}, err
	}
	select {
	case o := <-d.result:
		if to.here != nil {
			to.here.forget(d, false)
		}
		return o, o.err
	case <-ctx.Done():
		err := openEnded(ctx)
		s.tickets.take(d.ticket)
		if !d.settle(outcome{err: err}) { // a dial-back came in the last moment
			if o := <-d.result; o.conn != nil {
				o.conn.Close(transport.CloseUnknown, "nobody waits any more")
			}
		}
		if to.here != nil {
			to.here.forget(d, true)
		} else {
			s.tell(to.node, "/node/cancel", nodeCancel{d.hostID, d.ticket})
		}
		return outcome{}, err
	}
}

// sendDial sends d on a socket here, or has the node that holds it do so.
func (s *Server) sendDial(ctx context.Context, to route, d *dial) error {
	if to.here != nil {
		if !to.here.sendDial(d) {
			return errGone
		}
		return nil
	}
	var answer nodeDialed
	err := s.call(ctx, to.node, "/node/dial", nodeDial{
		HostID: d.hostID, ID: d.att.ID, Generation: d.att.Generation, Ticket: d.ticket, StreamID: d.streamID,
		Kind: d.spec.kind, Path: d.spec.path, Query: d.spec.query, Service: d.spec.service, Proto: d.spec.proto,
		Waiting: s.incarnation,
	}, &answer)
	switch {
	case ctx.Err() != nil:
		return openEnded(ctx)
	case errors.Is(err, errNodeDown):
		return errGone
	case err != nil:
		return err
	}
	s.stats.dials.Add(1)
	switch answer.Result {
	case dialedResult:
		return nil
	case retiredResult:
		return errReplaced
	}
	return errNotMine
}

// openEnded is the typed error for the end of an open's context.
func openEnded(ctx context.Context) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrNoDialBack), errors.Is(cause, ErrRevoked), errors.Is(cause, ErrUnauthorized),
		errors.Is(cause, ErrDraining), errors.Is(cause, ErrClosed):
		return cause
	case errors.Is(cause, context.DeadlineExceeded):
		return ErrNoDialBack // the caller's own deadline came first
	}
	return errClientGone
}

// awaitOpened reads the first frame of a tcp data socket: success means that
// the agent has reached the service.
func awaitOpened(ctx context.Context, conn transport.Conn) error {
	stop := context.AfterFunc(ctx, conn.CloseNow)
	f, err := transport.ReadFrame(conn)
	if !stop() {
		return openEnded(ctx)
	}
	if err != nil {
		conn.CloseNow()
		return ErrStreamClosed
	}
	switch f := f.(type) {
	case transport.Opened:
		return nil
	case transport.Refuse:
		conn.Close(transport.CloseNormal, "")
		return &RefusedError{f.Status, f.Reason}
	}
	conn.Close(transport.CloseProtocolError, "the first frame must be stream:opened or stream:refuse")
	return errFirstFrame
}

// pollInterval is how often a host is looked for that is not on this node.
const pollInterval = 200 * time.Millisecond

// locate finds the host's current control socket, by a read of the Store that
// begins after the call. A host that has just left gets ReconnectGrace to come
// back; last says how an earlier issue of this open ended.
func (s *Server) locate(ctx context.Context, hub *hub, last attempt) (route, error) {
	var graceEnd, awaited time.Time
	asserted, asked := false, false
	for {
		here, goneAt, changed := hub.look() // before the read: nothing is missed
		if time.Since(goneAt) >= s.cfg.ReconnectGrace {
			goneAt = time.Time{} // it may have been on another node since
		}
		att, err := s.current(ctx, hub)
		switch {
		case here != nil && !asserted && lost(here, att, err):
			asserted = true
			s.pinger.confirm([]*controlConn{here}, nil)
			continue
		case err == nil && att.Incarnation == s.incarnation && att.NodeID == s.nodeID:
			if here != nil && here.att.ID == att.ID {
				return route{att: att, here: here}, nil
			}
			// Claimed and not yet installed, or ended and not yet detached.
			if goneAt.IsZero() {
				goneAt = time.Now()
			}
		case err == nil && last.id != "" && att.ID == last.id && errors.Is(last.err, errGone):
			// Its node has said that it is not there, or is not there itself.
			if goneAt.IsZero() {
				goneAt = last.gone
			}
		case err == nil:
			if n, ok := s.nodes.byIncarnation(att.Incarnation); ok && s.callable(n) {
				return route{att: att, node: n, awaited: awaited}, nil
			}
			// On a node that is gone, or that cannot be called. One that has
			// just refused a call has just died.
			if at, ok := s.nodes.suspectedAt(att.Incarnation); ok && goneAt.IsZero() {
				goneAt, awaited = at, at
			}
		case errors.Is(err, store.ErrNotFound):
			if goneAt.IsZero() && last.err == nil && s.shared && !asked {
				asked = true // it may just have left another node
				goneAt = s.leftAt(ctx, hub.hostID)
			}
		case ctx.Err() != nil:
			return route{}, openEnded(ctx)
		case s.cfg.StoreOutage == ServeLocal && here != nil && here.fresh():
			return route{att: here.att, here: here}, nil // the stated weakening of I1
		default:
			return route{}, ErrStoreUnavailable
		}
		if graceEnd.IsZero() {
			if goneAt.IsZero() && last.err != nil {
				goneAt = time.Now()
			}
			graceEnd = goneAt.Add(s.cfg.ReconnectGrace)
		}
		left := time.Until(graceEnd)
		if left <= 0 {
			return route{}, last.offline()
		}
		t := time.NewTimer(min(left, pollInterval))
		select {
		case <-changed:
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return route{}, openEnded(ctx)
		}
		t.Stop()
	}
}

// leftAt is when a host has left, as the Store remembers it, on this node's
// clock; zero if it was sent away or is not remembered. One that is back since
// the Store was asked for its socket has left just now.
func (s *Server) leftAt(ctx context.Context, hostID string) time.Time {
	sctx, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
	defer cancel()
	seen, err := s.cfg.Store.LastSeen(sctx, []string{hostID})
	if ctx.Err() == nil { // else the end is the caller's own
		s.outage.observe(err)
	}
	if seen[hostID].Attached {
		return time.Now()
	}
	switch seen[hostID].Reason {
	case "", store.ReasonRevoked:
		return time.Time{}
	}
	return time.Now().Add(-seen[hostID].LeftFor)
}

// fresh reports whether the host has pinged lately.
func (c *controlConn) fresh() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state == stateCurrent && time.Since(c.lastPing) < localAlive
}
