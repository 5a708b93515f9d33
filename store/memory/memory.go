// Package memory is the [store.Store] of one process.
//
// It needs no settings, runs no goroutine and has nothing to close, which makes
// it the Store of tests, also inside testing/synctest bubbles (make the Store
// inside the bubble, so that it takes the bubble's clock), and of a relay that
// runs as a single node. Several Servers of one process may share one Store:
// they are then several nodes.
//
// What differs from the contract of package store: deadlines are kept by the
// process's monotonic clock, so no jump of the wall clock expires or prolongs
// anything; LastPing and generations are read from the wall clock. ttl has the
// precision of the clock. All is lost when the process ends.
//
// Records that have expired are dropped when they are touched, and a few at a
// time by every write. A host that is attached costs about 250 bytes beside
// the strings that it was given, one that was replaced once 130 more, and one
// that has left about 200 until its tombstone is dropped after a day.
package memory

import (
	"context"
	"sync"
	"time"

	"github.com/dialback/dialback/store"
)

// sweepPerWrite is how many hosts, and how many lists of sockets, a write looks
// at for what has expired. A write adds at most one for each thing that it is
// given, so that above 1 the garbage stays a fraction of what stands.
const sweepPerWrite = 8

// Store keeps everything in maps under one mutex. Make it with New; it is safe
// for concurrent use.
type Store struct {
	// Immutable after New.
	start time.Time // origin of deadlines
	wall  func() time.Time

	// Guarded by mu.
	mu       sync.Mutex
	closed   bool
	hosts    map[string]*host
	hostRing ring[*host]
	sockets  map[string]*socketList // by host; only hosts that have some
	listRing ring[*socketList]
	nodes    map[string]*node
}

var _ store.Store = (*Store)(nil)

// New returns an empty Store.
func New() *Store { return NewWithClock(time.Now) }

// NewWithClock is New with another wall clock, from which LastPing and
// generations are read: for tests in which it jumps. It is called with a lock
// held, and must be safe for concurrent use.
func NewWithClock(wall func() time.Time) *Store {
	return &Store{
		start:   time.Now(),
		wall:    wall,
		hosts:   make(map[string]*host),
		sockets: make(map[string]*socketList),
		nodes:   make(map[string]*node),
	}
}

// Close forgets everything. Later calls return store.ErrClosed; Close itself
// may be called again.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.hosts, s.hostRing = nil, ring[*host]{}
	s.sockets, s.listRing = nil, ring[*socketList]{}
	s.nodes = nil
	return nil
}

// Stats counts what a Store holds.
type Stats struct {
	Hosts      int // with a current attachment
	Tombstones int // without one, but not yet forgotten
	Sockets    int // records of client and dial sockets
	Nodes      int // with a live lease
}

// Stats drops all that has expired and counts the rest, for tests that look
// for leaks. It takes time in proportion to what the Store holds.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.sweepLocked(now, max(len(s.hosts), len(s.sockets)))
	s.expireNodesLocked(now)

	var st Stats
	for _, h := range s.hosts {
		if h.standing(now) != nil {
			st.Hosts++
		} else {
			st.Tombstones++
		}
	}
	for _, l := range s.sockets {
		st.Sockets += len(l.items)
	}
	for _, n := range s.nodes {
		if n.live(now) {
			st.Nodes++
		}
	}
	return st
}

// lock takes mu for a method that was called with ctx. If it returns an error
// mu is not held, and nothing has changed.
func (s *Store) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return store.ErrClosed
	}
	return nil
}

// sweepLocked looks at n hosts and n lists of sockets, each time at the next
// ones, and drops those of which nothing is left.
func (s *Store) sweepLocked(now moment, n int) {
	for range min(n, len(s.hostRing.items)) {
		if h := s.hostRing.next(); h.empty(now) {
			s.dropHostLocked(h)
		}
	}
	for range min(n, len(s.listRing.items)) {
		if l := s.listRing.next(); l.expire(now) {
			s.dropListLocked(l)
		}
	}
}
