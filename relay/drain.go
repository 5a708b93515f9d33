package relay

import (
	"context"
	"slices"
	"time"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/transport"
)

// phase is the life of a Server; it only moves forward.
type phase uint8

const (
	phaseAccepting phase = iota
	phaseNotice          // draining: no new hosts, clients are still served
	phaseDraining        // and no new clients; dial-backs are still accepted
	phaseLeaving         // no dial-backs for other nodes either
	phaseClosed
)

// accepting reports, as an error, why a new control socket or a new client is
// not taken. Dial-backs for a process that was superseded may land on the other
// one, which has its ID.
func (s *Server) accepting(client bool) error {
	usurped := s.nodes.isUsurped()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.phase == phaseClosed:
		return ErrClosed
	case usurped:
		return Deny(ErrDraining, "another process has taken this node's id")
	case s.phase >= phaseDraining, s.phase == phaseNotice && !client:
		return ErrDraining
	}
	return nil
}

func (s *Server) draining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase != phaseAccepting
}

// advance moves to phase p; it reports false if the Server is there already.
func (s *Server) advance(p phase) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase >= p {
		return false
	}
	s.phase = p
	return true
}

// Shutdown drains the Server: it takes nothing new, lets the rest finish, and
// closes. The order: health says 503 and new hosts are refused; clients are
// still served for DrainNotice; then new clients are refused, agents are asked
// to connect elsewhere and v2 hosts are closed with 1012, spread over
// DrainNotice; then it waits until no stream is left and every agent has
// connected to another node, if there is one, or until ctx ends, and closes. It
// returns ctx's error if that came first; the Server is closed in
// either case.
//
// http.Server.Shutdown does not wait for hijacked connections. The order for a
// process is: readiness off, relay's Shutdown while the HTTP server still
// accepts the dial-backs of streams that are being opened, then
// http.Server.Shutdown.
func (s *Server) Shutdown(ctx context.Context) error {
	if !s.advance(phaseNotice) {
		select {
		case <-s.closed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	caller := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)() // Close ends a Shutdown under way
	s.log.Info("draining")
	s.nodes.beat() // the others see Draining
	err := wait(ctx, s.cfg.DrainNotice)
	if err == nil && s.advance(phaseDraining) {
		s.askToLeave(ctx)
		err = s.waitIdle(ctx)
	}
	if err == nil && s.advance(phaseLeaving) {
		err = s.waitHops(ctx)
	}
	s.Close()
	if err != nil {
		err = caller.Err()
	}
	return err
}

// askToLeave tells every host to go elsewhere, spread by jitter.
func (s *Server) askToLeave(ctx context.Context) {
	for _, c := range s.registry.controls() {
		s.spawn(func() {
			if wait(ctx, s.jitter(s.cfg.DrainNotice)) == nil {
				c.askToLeave()
			}
		})
	}
}

func (c *controlConn) askToLeave() {
	if c.att.Proto >= 3 {
		c.send(transport.Encode(transport.Drain{ReconnectAfterMs: c.srv.jitter(time.Second).Milliseconds()}))
		return
	}
	c.retire(store.ReasonGone, transport.CloseRestart, "node is draining")
}

// attachedLate sends a socket away that was admitted before its node began to
// leave, or was superseded, and has attached since: it may have been missed by who
// does that for all.
func (c *controlConn) attachedLate() {
	c.srv.mu.Lock()
	phase := c.srv.phase
	c.srv.mu.Unlock()
	switch {
	case c.srv.nodes.isUsurped():
		c.supersede()
	case phase == phaseClosed:
		c.retire(store.ReasonGone, transport.CloseRestart, "node is restarting")
	case phase >= phaseDraining:
		c.askToLeave()
	}
}

// waitIdle waits until there is no stream, and no agent that has not yet
// connected elsewhere, if there is an elsewhere.
func (s *Server) waitIdle(ctx context.Context) error {
	for s.stats.streams.Load() > 0 || s.agentsLeft() {
		if err := wait(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// agentsLeft reports whether an agent of protocol 3 is still attached here and
// could be elsewhere: a node that drains as well takes none.
func (s *Server) agentsLeft() bool {
	elsewhere := slices.ContainsFunc(s.nodes.others(), func(n store.Node) bool { return !n.Draining })
	return elsewhere && slices.ContainsFunc(s.registry.controls(), func(c *controlConn) bool { return c.att.Proto >= 3 })
}

// waitHops waits for the dial-backs that pass through this node.
func (s *Server) waitHops(ctx context.Context) error {
	for s.stats.hopping.Load() > 0 {
		if err := wait(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the Server at once: control sockets and streams are closed with
// 1012, hosts are detached, and all goroutines have ended when it returns,
// within CloseTimeout and a few StoreTimeouts, however many hosts there are.
// Calls after the first wait for it.
func (s *Server) Close() error {
	if !s.advance(phaseClosed) {
		<-s.closed
		return nil
	}
	defer close(s.closed)
	for _, st := range s.registry.streams() {
		st.abort(ErrDraining)
	}
	// Many at once, and with one bound for all: a Store that hangs must not cost
	// a timeout for each host.
	ctx, cancel := context.WithTimeout(context.Background(), 2*s.cfg.StoreTimeout)
	defer cancel()
	sem := make(chan struct{}, 64)
	for _, c := range s.registry.controls() {
		sem <- struct{}{}
		go func() {
			defer func() { <-sem }()
			c.retireWithin(ctx, store.ReasonGone, transport.CloseRestart, "node is restarting")
		}()
	}
	for range cap(sem) {
		sem <- struct{}{}
	}
	s.cancel(ErrClosed)
	s.conns.closeAll()
	s.wg.Wait()
	s.nodeClient.CloseIdleConnections()
	s.recorder.flushAll()
	s.nodes.drop()
	return nil
}

// jitter is a random part of d.
func (s *Server) jitter(d time.Duration) time.Duration {
	return time.Duration(s.rand() * float64(d))
}

// wait sleeps for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
