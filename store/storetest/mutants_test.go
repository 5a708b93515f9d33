package storetest_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/memory"
)

// mutant is a Store that breaks one rule, and the cases that must notice.
// Others may notice as well.
type mutant struct {
	name string
	open func() (a, b store.Store)
	kill []string
}

// altered is a Store of which some methods do something else.
type altered struct {
	*memory.Store
	claim      func(context.Context, store.Attachment, time.Duration) (store.Claimed, error)
	current    func(context.Context, string) (store.Attachment, error)
	ping       func(context.Context, []store.Attachment, time.Duration) ([]bool, error)
	retire     func(context.Context, store.Ref, store.Reason) error
	detach     func(context.Context, store.Ref) error
	lastSeen   func(context.Context, []string) (map[string]store.Seen, error)
	putSockets func(context.Context, []store.Attachment, time.Duration) error
	drop       func(context.Context, []store.SocketRef) error
	sockets    func(context.Context, string, string, int) ([]store.Attachment, error)
	keepNode   func(context.Context, store.Node, time.Duration) (bool, error)
	nodes      func(context.Context) ([]store.Node, error)
	dropNode   func(context.Context, string, string) error
	close      func() error
}

func (s *altered) Claim(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
	if s.claim != nil {
		return s.claim(ctx, a, ttl)
	}
	return s.Store.Claim(ctx, a, ttl)
}

func (s *altered) Current(ctx context.Context, hostID string) (store.Attachment, error) {
	if s.current != nil {
		return s.current(ctx, hostID)
	}
	return s.Store.Current(ctx, hostID)
}

func (s *altered) Ping(ctx context.Context, as []store.Attachment, ttl time.Duration) ([]bool, error) {
	if s.ping != nil {
		return s.ping(ctx, as, ttl)
	}
	return s.Store.Ping(ctx, as, ttl)
}

func (s *altered) Retire(ctx context.Context, ref store.Ref, reason store.Reason) error {
	if s.retire != nil {
		return s.retire(ctx, ref, reason)
	}
	return s.Store.Retire(ctx, ref, reason)
}

func (s *altered) Detach(ctx context.Context, ref store.Ref) error {
	if s.detach != nil {
		return s.detach(ctx, ref)
	}
	return s.Store.Detach(ctx, ref)
}

func (s *altered) LastSeen(ctx context.Context, hostIDs []string) (map[string]store.Seen, error) {
	if s.lastSeen != nil {
		return s.lastSeen(ctx, hostIDs)
	}
	return s.Store.LastSeen(ctx, hostIDs)
}

func (s *altered) PutSockets(ctx context.Context, as []store.Attachment, ttl time.Duration) error {
	if s.putSockets != nil {
		return s.putSockets(ctx, as, ttl)
	}
	return s.Store.PutSockets(ctx, as, ttl)
}

func (s *altered) DropSockets(ctx context.Context, refs []store.SocketRef) error {
	if s.drop != nil {
		return s.drop(ctx, refs)
	}
	return s.Store.DropSockets(ctx, refs)
}

func (s *altered) Sockets(ctx context.Context, hostID, after string, limit int) ([]store.Attachment, error) {
	if s.sockets != nil {
		return s.sockets(ctx, hostID, after, limit)
	}
	return s.Store.Sockets(ctx, hostID, after, limit)
}

func (s *altered) KeepNode(ctx context.Context, n store.Node, lease time.Duration) (bool, error) {
	if s.keepNode != nil {
		return s.keepNode(ctx, n, lease)
	}
	return s.Store.KeepNode(ctx, n, lease)
}

func (s *altered) Nodes(ctx context.Context) ([]store.Node, error) {
	if s.nodes != nil {
		return s.nodes(ctx)
	}
	return s.Store.Nodes(ctx)
}

func (s *altered) DropNode(ctx context.Context, id, incarnation string) error {
	if s.dropNode != nil {
		return s.dropNode(ctx, id, incarnation)
	}
	return s.Store.DropNode(ctx, id, incarnation)
}

func (s *altered) Close() error {
	if s.close != nil {
		return s.close()
	}
	return s.Store.Close()
}

// broken opens one Store, altered by change, as both handles.
func broken(change func(*altered)) func() (store.Store, store.Store) {
	return func() (store.Store, store.Store) {
		s := &altered{Store: memory.New()}
		change(s)
		return s, s
	}
}

// remembers is a map that a mutant keeps beside its Store.
type remembers[V any] struct {
	mu sync.Mutex
	m  map[string]V
}

func (r *remembers[V]) get(k string) (V, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.m[k]
	return v, ok
}

func (r *remembers[V]) set(k string, v V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.m == nil {
		r.m = make(map[string]V)
	}
	r.m[k] = v
}

// renamed is a Store that escapes IDs by name, which must not make two equal.
func renamed(name func(string) string) func(*altered) {
	return func(s *altered) {
		s.claim = func(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
			hostID := a.HostID
			a.HostID, a.ID, a.NodeID = name(a.HostID), name(a.ID), name(a.NodeID)
			c, err := s.Store.Claim(ctx, a, ttl)
			c.Current.HostID = hostID
			return c, err
		}
		s.current = func(ctx context.Context, hostID string) (store.Attachment, error) {
			a, err := s.Store.Current(ctx, name(hostID))
			a.HostID = hostID
			return a, err
		}
		s.putSockets = func(ctx context.Context, as []store.Attachment, ttl time.Duration) error {
			as = slices.Clone(as)
			for i := range as {
				as[i].ID = name(as[i].ID)
			}
			return s.Store.PutSockets(ctx, as, ttl)
		}
		s.keepNode = func(ctx context.Context, n store.Node, lease time.Duration) (bool, error) {
			n.ID = name(n.ID)
			return s.Store.KeepNode(ctx, n, lease)
		}
	}
}

// ttls is a Store that changes ttls.
func ttls(change func(time.Duration) time.Duration) func(*altered) {
	return func(s *altered) {
		s.claim = func(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
			return s.Store.Claim(ctx, a, change(ttl))
		}
		s.ping = func(ctx context.Context, as []store.Attachment, ttl time.Duration) ([]bool, error) {
			return s.Store.Ping(ctx, as, change(ttl))
		}
		s.putSockets = func(ctx context.Context, as []store.Attachment, ttl time.Duration) error {
			return s.Store.PutSockets(ctx, as, change(ttl))
		}
		s.keepNode = func(ctx context.Context, n store.Node, lease time.Duration) (bool, error) {
			return s.Store.KeepNode(ctx, n, change(lease))
		}
	}
}

// forgetful makes s lose everything about hosts and nodes when lost says so,
// and when the returned function is called.
func forgetful(s *altered, lost func() bool) (forget func()) {
	var mu sync.Mutex
	inner := memory.New()
	forget = func() {
		mu.Lock()
		defer mu.Unlock()
		inner = memory.New()
	}
	get := func() *memory.Store {
		mu.Lock()
		defer mu.Unlock()
		if lost() {
			inner = memory.New()
		}
		return inner
	}
	s.claim = func(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
		return get().Claim(ctx, a, ttl)
	}
	s.current = func(ctx context.Context, hostID string) (store.Attachment, error) {
		return get().Current(ctx, hostID)
	}
	s.ping = func(ctx context.Context, as []store.Attachment, ttl time.Duration) ([]bool, error) {
		return get().Ping(ctx, as, ttl)
	}
	s.retire = func(ctx context.Context, ref store.Ref, reason store.Reason) error {
		return get().Retire(ctx, ref, reason)
	}
	s.detach = func(ctx context.Context, ref store.Ref) error {
		return get().Detach(ctx, ref)
	}
	s.lastSeen = func(ctx context.Context, hostIDs []string) (map[string]store.Seen, error) {
		return get().LastSeen(ctx, hostIDs)
	}
	s.keepNode = func(ctx context.Context, n store.Node, lease time.Duration) (bool, error) {
		return get().KeepNode(ctx, n, lease)
	}
	s.nodes = func(ctx context.Context) ([]store.Node, error) {
		return get().Nodes(ctx)
	}
	return forget
}

// silence returns a function that says once whether d has passed since it was
// called before.
func silence(d time.Duration) func() bool {
	last := time.Now()
	return func() bool {
		now := time.Now()
		lost := now.Sub(last) >= d
		last = now
		return lost
	}
}

func mutants() []mutant {
	return slices.Concat(routeMutants(), pingMutants(), retireMutants(), seenMutants(), socketMutants(), nodeMutants(), generalMutants())
}
