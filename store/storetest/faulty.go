package storetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dialback/dialback/store"
)

// Fault is what goes wrong with a call. Its parts happen in the order Delay,
// Hang, Err; the zero Fault changes nothing.
type Fault struct {
	// Delay holds the call back. When the call's ctx ends first, the call
	// returns its error.
	Delay time.Duration
	// Hang holds the call back until its ctx ends, then returns its error. A
	// call that hangs when its fault is replaced or cleared goes on.
	Hang bool
	// Err is returned instead of the answer.
	Err error
	// After lets the wrapped Store do the call first and applies the rest to
	// its reply: with Err the reply is lost. Otherwise the wrapped Store is not
	// called if the call fails.
	After bool
	// Times is how many calls the fault applies to. Zero means all, until it
	// is replaced or cleared.
	Times int
}

// Faulty is a Store that passes every call on to another and fails, delays or
// hangs those that Set names. It is safe for concurrent use, and works in
// bubbles.
type Faulty struct {
	// Immutable after NewFaulty.
	inner store.Store

	// Guarded by mu. Never held while a call is under way.
	mu     sync.Mutex
	faults map[string]*planned
	calls  map[string]int
	broken error // a method was named that no Store has
}

// planned is a fault in force.
type planned struct {
	Fault
	left   int           // calls left, if Times is not 0
	lifted chan struct{} // closed when replaced or cleared
}

var _ store.Store = (*Faulty)(nil)

// methods are the names that Set and Calls know beside "*".
var methods = map[string]bool{
	"Claim": true, "Current": true, "Ping": true, "Retire": true, "Detach": true, "LastSeen": true,
	"PutSockets": true, "DropSockets": true, "Sockets": true,
	"KeepNode": true, "Nodes": true, "DropNode": true, "Close": true,
}

// NewFaulty returns a Faulty over s without any fault.
func NewFaulty(s store.Store) *Faulty {
	return &Faulty{
		inner:  s,
		faults: make(map[string]*planned),
		calls:  make(map[string]int),
	}
}

// Set puts a fault in force for a method, named as in the interface, in place
// of the one before; calls under way keep theirs, except that those that hang
// go on. "*" is all methods that have no fault of their own. After a name that
// no Store has, every call fails and says so.
func (f *Faulty) Set(method string, fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if method != "*" && !methods[method] {
		f.broken = fmt.Errorf("storetest: Faulty.Set: a Store has no method %q", method)
		return
	}
	f.liftLocked(method)
	f.faults[method] = &planned{Fault: fault, left: fault.Times, lifted: make(chan struct{})}
}

// Clear ends all faults. Calls that hang go on.
func (f *Faulty) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for method := range f.faults {
		f.liftLocked(method)
	}
}

// Calls returns how often a method was called, failed calls included; "*" is
// all methods.
func (f *Faulty) Calls(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[method]
}

func (f *Faulty) liftLocked(method string) {
	if p := f.faults[method]; p != nil {
		close(p.lifted)
		delete(f.faults, method)
	}
}

// next counts a call and returns its fault, nil if there is none.
func (f *Faulty) next(method string) (*planned, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[method]++
	f.calls["*"]++
	if f.broken != nil {
		return nil, f.broken
	}
	for _, name := range []string{method, "*"} {
		p := f.faults[name]
		if p == nil {
			continue
		}
		if p.Times > 0 {
			if p.left == 0 {
				continue
			}
			p.left--
		}
		return p, nil
	}
	return nil, nil
}

// apply waits and fails as planned.
func (p *planned) apply(ctx context.Context) error {
	if p.Delay > 0 {
		delay := time.NewTimer(p.Delay)
		defer delay.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-delay.C:
		}
	}
	if p.Hang {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.lifted:
		}
	}
	return p.Err
}

// through makes one call of the wrapped Store under the fault of its method.
// An answer whose reply is lost is the zero value.
func through[T any](ctx context.Context, f *Faulty, method string, call func() (T, error)) (T, error) {
	var none T
	p, err := f.next(method)
	if err != nil {
		return none, err
	}
	if p == nil {
		return call()
	}
	if !p.After {
		if err := p.apply(ctx); err != nil {
			return none, err
		}
		return call()
	}
	answer, err := call()
	if lost := p.apply(ctx); lost != nil {
		return none, lost
	}
	return answer, err
}

// bare is through for a method that answers with an error alone.
func bare(ctx context.Context, f *Faulty, method string, call func() error) error {
	_, err := through(ctx, f, method, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

// Claim implements store.Routes.
func (f *Faulty) Claim(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
	return through(ctx, f, "Claim", func() (store.Claimed, error) { return f.inner.Claim(ctx, a, ttl) })
}

// Current implements store.Routes.
func (f *Faulty) Current(ctx context.Context, hostID string) (store.Attachment, error) {
	return through(ctx, f, "Current", func() (store.Attachment, error) { return f.inner.Current(ctx, hostID) })
}

// Ping implements store.Routes.
func (f *Faulty) Ping(ctx context.Context, as []store.Attachment, ttl time.Duration) ([]bool, error) {
	return through(ctx, f, "Ping", func() ([]bool, error) { return f.inner.Ping(ctx, as, ttl) })
}

// Retire implements store.Routes.
func (f *Faulty) Retire(ctx context.Context, ref store.Ref, reason store.Reason) error {
	return bare(ctx, f, "Retire", func() error { return f.inner.Retire(ctx, ref, reason) })
}

// Detach implements store.Routes.
func (f *Faulty) Detach(ctx context.Context, ref store.Ref) error {
	return bare(ctx, f, "Detach", func() error { return f.inner.Detach(ctx, ref) })
}

// LastSeen implements store.Routes.
func (f *Faulty) LastSeen(ctx context.Context, hostIDs []string) (map[string]store.Seen, error) {
	return through(ctx, f, "LastSeen", func() (map[string]store.Seen, error) { return f.inner.LastSeen(ctx, hostIDs) })
}

// PutSockets implements store.Sockets.
func (f *Faulty) PutSockets(ctx context.Context, as []store.Attachment, ttl time.Duration) error {
	return bare(ctx, f, "PutSockets", func() error { return f.inner.PutSockets(ctx, as, ttl) })
}

// DropSockets implements store.Sockets.
func (f *Faulty) DropSockets(ctx context.Context, refs []store.SocketRef) error {
	return bare(ctx, f, "DropSockets", func() error { return f.inner.DropSockets(ctx, refs) })
}

// Sockets implements store.Sockets.
func (f *Faulty) Sockets(ctx context.Context, hostID, after string, limit int) ([]store.Attachment, error) {
	return through(ctx, f, "Sockets", func() ([]store.Attachment, error) { return f.inner.Sockets(ctx, hostID, after, limit) })
}

// KeepNode implements store.Nodes.
func (f *Faulty) KeepNode(ctx context.Context, n store.Node, lease time.Duration) (bool, error) {
	return through(ctx, f, "KeepNode", func() (bool, error) { return f.inner.KeepNode(ctx, n, lease) })
}

// Nodes implements store.Nodes.
func (f *Faulty) Nodes(ctx context.Context) ([]store.Node, error) {
	return through(ctx, f, "Nodes", func() ([]store.Node, error) { return f.inner.Nodes(ctx) })
}

// DropNode implements store.Nodes.
func (f *Faulty) DropNode(ctx context.Context, id, incarnation string) error {
	return bare(ctx, f, "DropNode", func() error { return f.inner.DropNode(ctx, id, incarnation) })
}

// Close closes the wrapped Store. It has no ctx: one that hangs does so until
// its fault is lifted.
func (f *Faulty) Close() error {
	return bare(context.Background(), f, "Close", f.inner.Close)
}
