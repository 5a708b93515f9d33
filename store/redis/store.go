package redis

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dialback/dialback/store"
)

// Options says how a Store uses its server. The zero Options are fine.
type Options struct {
	// Prefix begins all keys, so that one server may serve several fleets, or
	// other programs. Braces and percent signs in it are escaped.
	// Empty means "dialback:".
	Prefix string
	// Timeout limits each round trip, and with it the time that a call takes
	// when the server does not answer. Ping, LastSeen, PutSockets, DropSockets
	// and Sockets make several round trips when they are given much; the first
	// one that fails ends the call. Zero means 500 ms.
	Timeout time.Duration
}

// Store keeps everything in Redis. Make it with New; it is safe for concurrent
// use. It runs no goroutine outside its calls.
type Store struct {
	// Immutable after New.
	client  goredis.UniversalClient
	keys    keys
	timeout time.Duration

	closed atomic.Bool
}

var _ store.Store = (*Store)(nil)

// New returns a Store that uses client, which must stay open as long as the
// Store is used and remains the caller's to close. o may be nil. New sends
// nothing: a server that is not there yet is an outage of the first call.
//
// Open makes a client that suits; see Clients in the documentation of this
// package for what one made otherwise should have set.
func New(client goredis.UniversalClient, o *Options) *Store {
	if o == nil {
		o = &Options{}
	}
	s := &Store{
		client:  client,
		keys:    newKeys("dialback:"),
		timeout: 500 * time.Millisecond,
	}
	if o.Prefix != "" {
		s.keys = newKeys(o.Prefix)
	}
	if o.Timeout > 0 {
		s.timeout = o.Timeout
	}
	return s
}

// Close makes later calls return store.ErrClosed. It does not close the client,
// and does not wait for calls that are running.
func (s *Store) Close() error {
	s.closed.Store(true)
	return nil
}

// ready says whether a call that was made with ctx may begin.
func (s *Store) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.closed.Load() {
		return store.ErrClosed
	}
	return nil
}

// millis returns d in milliseconds, rounded up.
func millis(d time.Duration) int64 {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 && ms < math.MaxInt64 {
		ms++
	}
	return ms
}
