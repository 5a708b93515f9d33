package sim

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/storetest"
)

// truth is the ledger as a store.Store, beneath the faults.
type truth struct{ *ledger }

func (t truth) Claim(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
	return t.claim(ctx, a, ttl)
}
func (t truth) Current(ctx context.Context, hostID string) (store.Attachment, error) {
	return t.store().Current(ctx, hostID)
}
func (t truth) Ping(ctx context.Context, as []store.Attachment, ttl time.Duration) ([]bool, error) {
	return t.ping(ctx, as, ttl)
}
func (t truth) Retire(ctx context.Context, ref store.Ref, why store.Reason) error {
	return t.retire(ref, why, func(m storeRetirer) error { return m.Retire(ctx, ref, why) })
}
func (t truth) Detach(ctx context.Context, ref store.Ref) error {
	return t.retire(ref, store.ReasonGone, func(m storeRetirer) error { return m.Detach(ctx, ref) })
}
func (t truth) LastSeen(ctx context.Context, hostIDs []string) (map[string]store.Seen, error) {
	return t.store().LastSeen(ctx, hostIDs)
}
func (t truth) PutSockets(ctx context.Context, as []store.Attachment, ttl time.Duration) error {
	return t.store().PutSockets(ctx, as, ttl)
}
func (t truth) DropSockets(ctx context.Context, refs []store.SocketRef) error {
	return t.store().DropSockets(ctx, refs)
}
func (t truth) Sockets(ctx context.Context, hostID, after string, limit int) ([]store.Attachment, error) {
	return t.store().Sockets(ctx, hostID, after, limit)
}
func (t truth) KeepNode(ctx context.Context, n store.Node, lease time.Duration) (bool, error) {
	return t.keepNode(ctx, n, lease)
}
func (t truth) Nodes(ctx context.Context) ([]store.Node, error) { return t.store().Nodes(ctx) }
func (t truth) DropNode(ctx context.Context, id, incarnation string) error {
	return t.store().DropNode(ctx, id, incarnation)
}
func (t truth) Close() error { return nil }

// seam is the Store as one process of a node sees it: its gate, then the
// faults, then the ledger. It knows how each call ended for the node.
type seam struct {
	// Immutable after newSeam.
	w      *World
	p      *process
	faulty *storetest.Faulty

	// Guarded by mu.
	mu          sync.Mutex
	incarnation string // of the node, as it says itself
	failed      stamp  // when a call failed last; zero if none has
	confirmed   map[string]confirmation
	unretired   map[string]bool // attachments of which a Retire or Detach failed
}

// confirmation is what the node was told of a socket by Ping.
type confirmation struct {
	current stamp // when the last call began that said current
	failed  stamp // when a call failed last
	told    bool  // the last call said current
}

func newSeam(w *World, p *process) *seam {
	return &seam{w: w, p: p, faulty: storetest.NewFaulty(truth{w.ledger}), confirmed: make(map[string]confirmation), unretired: make(map[string]bool)}
}

// through makes one call.
func through[T any](ctx context.Context, s *seam, f func(context.Context) (T, error)) (T, error) {
	var none T
	cctx, err := s.p.passCall(ctx)
	if err != nil {
		return none, s.ended(err)
	}
	v, err := f(cctx)
	if passed := s.p.pass(nil); passed != nil { // the reply waits as well
		return none, s.ended(passed)
	}
	if err == nil && cctx.Err() == nil && ctx.Err() != nil {
		err = ctx.Err() // it was made late: the node has given it up
	}
	if err != nil {
		return none, s.ended(err)
	}
	return v, nil
}

func bare(ctx context.Context, s *seam, f func(context.Context) error) error {
	_, err := through(ctx, s, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

// ended notes a call that failed.
func (s *seam) ended(err error) error {
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrRetired) || errors.Is(err, store.ErrInvalid) {
		return err
	}
	at := s.w.tr.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = at
	return err
}

// failedWithin reports whether a call has failed since a time.
func (s *seam) failedWithin(since time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed.n != 0 && s.failed.t >= since
}

func (s *seam) confirmation(id string) confirmation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.confirmed[id]
}

func (s *seam) couldNotRetire(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unretired[id]
}

func (s *seam) retired(id string, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.unretired[id] = true
	}
	return err
}

func (s *seam) Claim(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
	return through(ctx, s, func(ctx context.Context) (store.Claimed, error) { return s.faulty.Claim(ctx, a, ttl) })
}

func (s *seam) Current(ctx context.Context, hostID string) (store.Attachment, error) {
	return through(ctx, s, func(ctx context.Context) (store.Attachment, error) { return s.faulty.Current(ctx, hostID) })
}

func (s *seam) Ping(ctx context.Context, as []store.Attachment, ttl time.Duration) ([]bool, error) {
	began := s.w.tr.now()
	current, err := through(ctx, s, func(ctx context.Context) ([]bool, error) { return s.faulty.Ping(ctx, as, ttl) })
	ended := s.w.tr.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, a := range as {
		c := s.confirmed[a.ID]
		switch c.told = err == nil && current[i]; {
		case err != nil:
			c.failed = ended
		case c.told:
			c.current = began
		}
		s.confirmed[a.ID] = c
	}
	return current, err
}

func (s *seam) Retire(ctx context.Context, ref store.Ref, why store.Reason) error {
	return s.retired(ref.ID, bare(ctx, s, func(ctx context.Context) error { return s.faulty.Retire(ctx, ref, why) }))
}

func (s *seam) Detach(ctx context.Context, ref store.Ref) error {
	return s.retired(ref.ID, bare(ctx, s, func(ctx context.Context) error { return s.faulty.Detach(ctx, ref) }))
}

func (s *seam) LastSeen(ctx context.Context, hostIDs []string) (map[string]store.Seen, error) {
	return through(ctx, s, func(ctx context.Context) (map[string]store.Seen, error) { return s.faulty.LastSeen(ctx, hostIDs) })
}

func (s *seam) PutSockets(ctx context.Context, as []store.Attachment, ttl time.Duration) error {
	return bare(ctx, s, func(ctx context.Context) error { return s.faulty.PutSockets(ctx, as, ttl) })
}

func (s *seam) DropSockets(ctx context.Context, refs []store.SocketRef) error {
	return bare(ctx, s, func(ctx context.Context) error { return s.faulty.DropSockets(ctx, refs) })
}

func (s *seam) Sockets(ctx context.Context, hostID, after string, limit int) ([]store.Attachment, error) {
	return through(ctx, s, func(ctx context.Context) ([]store.Attachment, error) {
		return s.faulty.Sockets(ctx, hostID, after, limit)
	})
}

func (s *seam) KeepNode(ctx context.Context, n store.Node, lease time.Duration) (bool, error) {
	s.mu.Lock()
	s.incarnation = n.Incarnation
	s.mu.Unlock()
	return through(ctx, s, func(ctx context.Context) (bool, error) { return s.faulty.KeepNode(ctx, n, lease) })
}

func (s *seam) Nodes(ctx context.Context) ([]store.Node, error) {
	return through(ctx, s, func(ctx context.Context) ([]store.Node, error) { return s.faulty.Nodes(ctx) })
}

func (s *seam) DropNode(ctx context.Context, id, incarnation string) error {
	return bare(ctx, s, func(ctx context.Context) error { return s.faulty.DropNode(ctx, id, incarnation) })
}

func (s *seam) Close() error { return nil }
