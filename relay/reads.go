package relay

import (
	"context"
	"errors"
	"time"

	"github.com/dialback/dialback/store"
)

// sharedRead lets concurrent requests for one host share a read of the Store,
// but only a read that begins after the request did.
type sharedRead struct {
	// Guarded by hub.mu.
	running bool
	next    *readCall // what the next read will answer
}

// readCall is one read of the Store.
type readCall struct {
	done chan struct{} // closed when att and err are set
	att  store.Attachment
	err  error
}

// current reads the host's current attachment, by a read that begins after the
// call. It says at once when the Store is known to be out.
func (s *Server) current(ctx context.Context, h *hub) (store.Attachment, error) {
	if s.outage.out() {
		return store.Attachment{}, ErrStoreUnavailable
	}
	h.mu.Lock()
	c := h.read.next
	if c == nil {
		c = &readCall{done: make(chan struct{})}
		h.read.next = c
	}
	start := !h.read.running
	h.read.running = true
	h.mu.Unlock()
	if start {
		s.registry.acquire(h.hostID)
		if !s.spawn(func() { s.readLoop(h) }) {
			s.registry.release(h)
			return store.Attachment{}, ErrClosed
		}
	}
	select {
	case <-c.done:
		return c.att, c.err
	case <-ctx.Done():
		return store.Attachment{}, ctx.Err()
	}
}

// readLoop reads for as long as somebody waits for a read.
func (s *Server) readLoop(h *hub) {
	defer s.registry.release(h)
	for {
		h.mu.Lock()
		c := h.read.next
		h.read.next = nil
		h.read.running = c != nil
		h.mu.Unlock()
		if c == nil {
			return
		}
		began := time.Now()
		c.err = s.outage.try(func(ctx context.Context) (err error) {
			began = time.Now()
			c.att, err = s.cfg.Store.Current(ctx, h.hostID)
			return err
		})
		if c.err == nil || errors.Is(c.err, store.ErrNotFound) {
			h.pool.named(c.att.Ref(), began)
		}
		close(c.done)
	}
}
