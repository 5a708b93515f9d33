package relaytest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/memory"
)

// LossyStore is a memory store that can lose everything, as a server that is
// restarted without persistence does.
type LossyStore struct{ now atomic.Pointer[memory.Store] }

var _ store.Store = (*LossyStore)(nil)

// NewLossyStore makes an empty store.
func NewLossyStore() *LossyStore {
	l := &LossyStore{}
	l.Lose()
	return l
}

// Lose makes the store empty.
func (l *LossyStore) Lose() { l.now.Store(memory.New()) }

func (l *LossyStore) Claim(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
	return l.now.Load().Claim(ctx, a, ttl)
}

func (l *LossyStore) Current(ctx context.Context, hostID string) (store.Attachment, error) {
	return l.now.Load().Current(ctx, hostID)
}

func (l *LossyStore) Ping(ctx context.Context, as []store.Attachment, ttl time.Duration) ([]bool, error) {
	return l.now.Load().Ping(ctx, as, ttl)
}

func (l *LossyStore) Retire(ctx context.Context, ref store.Ref, reason store.Reason) error {
	return l.now.Load().Retire(ctx, ref, reason)
}

func (l *LossyStore) Detach(ctx context.Context, ref store.Ref) error {
	return l.now.Load().Detach(ctx, ref)
}

func (l *LossyStore) LastSeen(ctx context.Context, hostIDs []string) (map[string]store.Seen, error) {
	return l.now.Load().LastSeen(ctx, hostIDs)
}

func (l *LossyStore) PutSockets(ctx context.Context, as []store.Attachment, ttl time.Duration) error {
	return l.now.Load().PutSockets(ctx, as, ttl)
}

func (l *LossyStore) DropSockets(ctx context.Context, refs []store.SocketRef) error {
	return l.now.Load().DropSockets(ctx, refs)
}

func (l *LossyStore) Sockets(ctx context.Context, hostID, after string, limit int) ([]store.Attachment, error) {
	return l.now.Load().Sockets(ctx, hostID, after, limit)
}

func (l *LossyStore) KeepNode(ctx context.Context, n store.Node, lease time.Duration) (bool, error) {
	return l.now.Load().KeepNode(ctx, n, lease)
}

func (l *LossyStore) Nodes(ctx context.Context) ([]store.Node, error) {
	return l.now.Load().Nodes(ctx)
}

func (l *LossyStore) DropNode(ctx context.Context, id, incarnation string) error {
	return l.now.Load().DropNode(ctx, id, incarnation)
}

// Close closes the store.
func (l *LossyStore) Close() error { return l.now.Load().Close() }
