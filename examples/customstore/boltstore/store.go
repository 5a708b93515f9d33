package boltstore

import (
	"context"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/dialback/dialback/store"
)

// Store keeps everything in a bbolt file. Make it with New; it is safe for
// concurrent use.
type Store struct {
	// Immutable after New.
	db *bbolt.DB

	closed atomic.Bool

	// Owned by the transaction that writes, of which there is one at a time.
	hands map[string][]byte // by bucket: the key at which the sweep goes on
}

var _ store.Store = (*Store)(nil)

// The buckets.
const (
	hostBucket   = "hosts"   // by host ID
	socketBucket = "sockets" // by host ID and socket ID: see socketKey
	nodeBucket   = "nodes"   // by node ID
)

// New returns a Store in db, which must stay open as long as the Store is used
// and remains the caller's to close. It makes the buckets that are missing.
func New(db *bbolt.DB) (*Store, error) {
	err := db.Update(func(tx *bbolt.Tx) error {
		for _, name := range []string{hostBucket, socketBucket, nodeBucket} {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &Store{db: db, hands: make(map[string][]byte)}, nil
}

// Close makes later calls return store.ErrClosed. It does not close the
// database, nor wait for calls that are running: db.Close does.
func (s *Store) Close() error {
	s.closed.Store(true)
	return nil
}

// view runs f in a transaction that reads.
func view[T any](ctx context.Context, s *Store, f func(*bbolt.Tx) (T, error)) (T, error) {
	return run(ctx, s, s.db.View, f)
}

// update runs f in a transaction that writes, and in it sweeps a few entries of
// each bucket. Nothing is written if f fails, or if ctx ended while others
// wrote.
func update[T any](ctx context.Context, s *Store, f func(*bbolt.Tx) (T, error)) (T, error) {
	return run(ctx, s, s.db.Update, func(tx *bbolt.Tx) (v T, err error) {
		if err := ctx.Err(); err != nil {
			return v, err
		}
		if v, err = f(tx); err == nil {
			err = s.sweep(tx, time.Now())
		}
		return v, err
	})
}

// run calls f in a transaction and waits for its end, or for that of ctx: bbolt
// knows no context, and the disk may take its time. A call that was left goes
// on, so f must not use anything of its caller's.
func run[T any](ctx context.Context, s *Store, transaction func(func(*bbolt.Tx) error) error, f func(*bbolt.Tx) (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if s.closed.Load() {
		return none, store.ErrClosed
	}
	c := &call[T]{done: make(chan struct{})}
	go c.run(transaction, f)
	select {
	case <-c.done:
		if c.err != nil {
			return none, c.err
		}
		return c.value, nil
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// call is one transaction. Its fields are written by run and may be read when
// done is closed.
type call[T any] struct {
	value T
	err   error
	done  chan struct{}
}

func (c *call[T]) run(transaction func(func(*bbolt.Tx) error) error, f func(*bbolt.Tx) (T, error)) {
	defer close(c.done)
	c.err = transaction(func(tx *bbolt.Tx) (err error) {
		c.value, err = f(tx)
		return err
	})
}
