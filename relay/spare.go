package relay

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/transport"
)

// spare is a data socket that an agent has dialed in advance, parked on the
// node whose clients use the host. Nothing was said on it yet; stream:open makes
// it the socket of one stream. It belongs to the control socket that has asked
// for it.
type spare struct {
	// Immutable after fetchSpare.
	srv    *Server
	hub    *hub
	att    store.Attachment
	conn   transport.Conn
	via    string // the node through which it passes, or empty
	expiry time.Time

	taken chan struct{} // closed when a stream takes it
	first chan struct{} // closed by read when frame and err are set
	frame transport.Frame
	err   error
}

// spares is the parked data sockets of one host on this node.
//
// Their number follows the use of the host: the first stream asks for one, a
// host that is used again within the life of a spare has Config.MaxSpares. A
// spare that nobody takes is not replaced.
type spares struct {
	// Guarded by mu.
	mu     sync.Mutex
	idle   []*spare              // the last one was parked last
	asked  int                   // dials under way
	floor  store.Ref             // spares of sockets before it are not kept
	used   time.Time             // when a stream was opened last
	racing map[*opening]struct{} // streams on spares that have no answer yet
	paused time.Time             // none is asked for before: the agent had none to give
}

// missing notes that a stream has been opened at now, and returns how many
// spares are to be asked for. They count as asked for.
func (p *spares) missing(now time.Time, most int, life time.Duration) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used.IsZero() || now.Sub(p.used) >= life {
		most = min(most, 1)
	}
	p.used = now
	n := most - p.asked - len(p.idle)
	if n <= 0 || now.Before(p.paused) {
		return 0
	}
	p.asked += n
	return n
}

// park keeps sp, which was asked for; false means that it is not wanted.
func (p *spares) park(sp *spare) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked--
	if before(sp.att.Ref(), p.floor) {
		return false
	}
	p.idle = append(p.idle, sp)
	return true
}

// missed: a spare that was asked for did not come. None is asked for until
// then.
func (p *spares) missed(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked--
	p.paused = until
}

// take returns the spare that was parked last, of those that a control socket has
// asked for, or nil. Its generation alone is not enough; see pool.take.
func (p *spares) take(socket store.Ref) *spare {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, sp := range slices.Backward(p.idle) {
		if sp.att.Ref() == socket {
			p.idle = slices.Delete(p.idle, i, i+1)
			close(sp.taken)
			return sp
		}
	}
	return nil
}

// race adds a stream without an answer, and removes it.
func (p *spares) race(o *opening) (over func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.racing == nil {
		p.racing = make(map[*opening]struct{})
	}
	p.racing[o] = struct{}{}
	if before(o.sp.att.Ref(), p.floor) {
		o.impatient()
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.racing, o)
		if len(p.racing) == 0 {
			p.racing = nil
		}
	}
}

// remove takes sp out, if it is parked.
func (p *spares) remove(sp *spare) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.idle, sp)
	if i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
	}
	return i >= 0
}

// drop closes the parked spares that unwanted names.
func (p *spares) drop(unwanted func(*spare) bool) {
	p.mu.Lock()
	var gone []*spare
	p.idle = slices.DeleteFunc(p.idle, func(sp *spare) bool {
		if unwanted(sp) {
			gone = append(gone, sp)
			return true
		}
		return false
	})
	p.mu.Unlock()
	for _, sp := range gone {
		sp.close()
	}
}

// dropBelow closes the spares of sockets before this one, and keeps out those
// that are on the way. Streams that wait for one of them are dialed at once.
func (p *spares) dropBelow(socket store.Ref) {
	p.mu.Lock()
	p.floor = newer(p.floor, socket)
	p.paused = time.Time{} // another socket, perhaps another agent
	for o := range p.racing {
		if before(o.sp.att.Ref(), socket) {
			o.impatient()
		}
	}
	p.mu.Unlock()
	p.drop(func(sp *spare) bool { return before(sp.att.Ref(), socket) })
}

// replenish asks the host behind to for the spares that it lacks, now that a
// stream to it has been opened.
func (s *Server) replenish(h *hub, to route) {
	if to.att.Proto < 3 || s.draining() {
		return
	}
	for range h.spares.missing(time.Now(), s.cfg.MaxSpares, s.cfg.PoolIdle) {
		s.registry.acquire(h.hostID)
		if !s.spawn(func() { s.fetchSpare(h, to) }) {
			h.spares.missed(time.Time{})
			s.registry.release(h)
			return
		}
	}
}

// fetchSpare has the agent dial one spare, and parks it until it is taken or
// over.
func (s *Server) fetchSpare(h *hub, to route) {
	defer s.registry.release(h)
	sp, err := s.dialSpare(h, to)
	if err != nil {
		h.spares.missed(time.Now().Add(s.cfg.PoolIdle))
		return
	}
	if !h.spares.park(sp) {
		sp.close()
		return
	}
	s.stats.spares.Add(1)
	defer s.stats.spares.Add(-1)
	if !s.spawn(sp.read) {
		if h.spares.remove(sp) {
			sp.close()
		}
		return
	}
	sp.keep()
}

func (s *Server) dialSpare(h *hub, to route) (*spare, error) {
	if err := h.beginDial(s.cfg.MaxPendingDials); err != nil {
		return nil, err
	}
	defer h.endDial()
	ctx, cancel := context.WithTimeoutCause(s.ctx, s.cfg.DialTimeout, ErrNoDialBack)
	defer cancel()
	o, err := s.dialOnce(ctx, to, "", dialSpec{kind: transport.KindSpare})
	if err != nil {
		return nil, err
	}
	return &spare{
		srv: s, hub: h, att: to.att, conn: o.conn, via: o.via, expiry: time.Now().Add(s.cfg.PoolIdle),
		taken: make(chan struct{}), first: make(chan struct{}),
	}, nil
}

// read waits for the first frame: the answer to stream:open. While the spare is
// parked it answers pings, and notices the end.
func (sp *spare) read() {
	sp.frame, sp.err = transport.ReadFrame(sp.conn)
	close(sp.first)
	if sp.hub.spares.remove(sp) { // nobody has asked it for anything
		sp.close()
	}
}

// keep pings the spare until it is taken, and closes it when its time is over
// or a pong fails to come.
func (sp *spare) keep() {
	for {
		left := time.Until(sp.expiry)
		t := time.NewTimer(min(left, sp.srv.cfg.DataPing))
		select {
		case <-sp.taken:
			t.Stop()
			return
		case <-sp.first:
			t.Stop()
			return
		case <-t.C:
		}
		if left > sp.srv.cfg.DataPing && sp.ping() {
			continue
		}
		if sp.hub.spares.remove(sp) {
			sp.close()
		}
		return
	}
}

func (sp *spare) ping() bool {
	ctx, cancel := context.WithTimeout(context.Background(), sp.srv.cfg.DataPing)
	defer cancel()
	return sp.conn.Ping(ctx) == nil
}

// close ends a spare that no stream has taken.
func (sp *spare) close() { sp.conn.Close(transport.CloseNormal, "") }

// dropBelow closes what waits here of sockets before this one, and keeps out
// what comes back.
func (h *hub) dropBelow(socket store.Ref) {
	h.pool.dropBelow(socket)
	h.spares.dropBelow(socket)
}

// dropVia closes what passes through one of these nodes.
func (h *hub) dropVia(drains func(nodeID string) bool) {
	h.pool.dropVia(drains)
	h.spares.drop(func(sp *spare) bool { return drains(sp.via) })
}

// dropIdle closes everything that waits for a stream or a request.
func (h *hub) dropIdle() {
	h.pool.clear()
	h.spares.drop(func(*spare) bool { return true })
}
