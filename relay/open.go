package relay

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/transport"
)

// Outcomes of one issue of a dial that end neither the open nor the stream.
var (
	errReplaced = errors.New("relay: the dial's socket was replaced")
	errGone     = errors.New("relay: the dial's socket went away")
)

// chooseSpec says what to ask of the host that was found; it is called again
// for a successor, which may speak another protocol.
type chooseSpec func(att store.Attachment) (dialSpec, error)

// open is the one way to a host: it finds the current control socket, sends a
// dial, and waits for the data socket. A tcp data socket has been opened by the
// agent when open returns.
//
// It fails with ErrHostOffline, ErrHostGone, ErrReplaced, ErrNoDialBack,
// ErrRefused, ErrHostLimit, ErrStoreUnavailable, ErrStreamClosed, an error of
// choose, or errClientGone when ctx ends; all within DialTimeout.
func (s *Server) open(ctx context.Context, hub *hub, streamID string, choose chooseSpec) (transport.Conn, store.Attachment, error) {
	if err := hub.beginDial(s.cfg.MaxPendingDials); err != nil {
		return nil, store.Attachment{}, err
	}
	defer hub.endDial()
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.DialTimeout, ErrNoDialBack)
	defer cancel()
	var last error // why the issue before failed
	for range maxIssues {
		att, ctl, err := s.locate(ctx, hub, last)
		if err != nil {
			return nil, att, err
		}
		spec, err := choose(att)
		if err != nil {
			return nil, att, err
		}
		conn, err := s.dialOnce(ctx, ctl, att, streamID, spec)
		switch {
		case err == nil:
			if spec.kind == transport.KindTCP {
				err = awaitOpened(ctx, conn)
			}
			return conn, att, err
		case errors.Is(err, errReplaced), errors.Is(err, errGone):
			last = err
		default:
			return nil, att, err
		}
	}
	if errors.Is(last, errGone) {
		return nil, store.Attachment{}, ErrHostGone
	}
	return nil, store.Attachment{}, ErrReplaced
}

// dialOnce issues one ticket on one control socket and waits for its outcome.
func (s *Server) dialOnce(ctx context.Context, ctl *controlConn, att store.Attachment, streamID string, spec dialSpec) (transport.Conn, error) {
	d := s.tickets.issue(att, streamID, spec)
	if !ctl.sendDial(d) {
		s.tickets.take(d.ticket)
		return nil, errGone
	}
	select {
	case o := <-d.result:
		ctl.forget(d, false)
		return o.conn, o.err
	case <-ctx.Done():
		err := openEnded(ctx)
		s.tickets.take(d.ticket)
		if !d.settle(outcome{err: err}) { // a dial-back came in the last moment
			if o := <-d.result; o.conn != nil {
				o.conn.Close(transport.CloseUnknown, "nobody waits any more")
			}
		}
		ctl.forget(d, true)
		return nil, err
	}
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
	f, err := readFirstFrame(conn)
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
	return &RefusedError{Status: 502, Reason: "the host's first frame is not stream:opened"}
}

func readFirstFrame(conn transport.Conn) (transport.Frame, error) {
	t, r, err := conn.Reader()
	if err != nil {
		return nil, err
	}
	p, err := readAll(io.LimitReader(r, transport.MaxControlFrame+1), nil)
	if err != nil {
		return nil, err
	}
	if t != transport.Text || len(p) > transport.MaxControlFrame {
		return nil, transport.ErrUnknownFrame
	}
	return transport.Decode(p)
}

// locate finds the host's current control socket, by a read of the Store that
// begins after the call. A host that has just left gets ReconnectGrace to come
// back. last says how an earlier issue of this open ended, if there was one.
func (s *Server) locate(ctx context.Context, hub *hub, last error) (store.Attachment, *controlConn, error) {
	offline := ErrHostOffline
	switch {
	case errors.Is(last, errGone):
		offline = ErrHostGone
	case errors.Is(last, errReplaced):
		offline = ErrReplaced
	}
	var graceEnd time.Time
	asserted := false
	for {
		here, goneAt, changed := hub.look() // before the read: nothing is missed
		att, err := s.current(ctx, hub.hostID)
		switch {
		case err == nil && att.Incarnation == s.incarnation && att.NodeID == s.nodeID:
			if here != nil && here.att.ID == att.ID {
				return att, here, nil
			}
			// Claimed and not yet installed, or ended and not yet detached.
			if goneAt.IsZero() {
				goneAt = time.Now()
			}
		case errors.Is(err, store.ErrNotFound) && here != nil && !asserted:
			// The Store has lost the row of a socket that is here.
			asserted = true
			s.pinger.confirm([]*controlConn{here}, nil)
			continue
		case err == nil, errors.Is(err, store.ErrNotFound):
			// Nowhere, or on a node that this one does not reach.
		case ctx.Err() != nil:
			return att, nil, openEnded(ctx)
		case s.cfg.StoreOutage == ServeLocal && here != nil && here.fresh():
			return here.att, here, nil // the stated weakening of I1
		default:
			return att, nil, ErrStoreUnavailable
		}
		if graceEnd.IsZero() {
			if goneAt.IsZero() && last != nil {
				goneAt = time.Now()
			}
			graceEnd = goneAt.Add(s.cfg.ReconnectGrace)
		}
		wait := time.Until(graceEnd)
		if wait <= 0 {
			return att, nil, offline
		}
		t := time.NewTimer(wait)
		select {
		case <-changed:
		case <-t.C:
			return att, nil, offline
		case <-ctx.Done():
			t.Stop()
			return att, nil, openEnded(ctx)
		}
		t.Stop()
	}
}

// current reads the Store, or says at once that it is out.
func (s *Server) current(ctx context.Context, hostID string) (store.Attachment, error) {
	if s.outage.out() {
		return store.Attachment{}, ErrStoreUnavailable
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
	defer cancel()
	att, err := s.cfg.Store.Current(ctx, hostID)
	s.outage.observe(err)
	return att, err
}

// fresh reports whether the host has pinged lately.
func (c *controlConn) fresh() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state == stateCurrent && time.Since(c.lastPing) < localAlive
}
