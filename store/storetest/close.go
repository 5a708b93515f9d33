package storetest

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/dialback/dialback/store"
)

var closeCases = []testCase{
	{name: "AContextThatIsDoneChangesNothing", run: doneContext},
	{name: "CloseMayBeCalledTwice", run: closeTwice},
	{name: "AfterCloseEveryMethodReturnsErrClosed", run: closedMethods},
}

// validCalls returns a call of each method but Close.
func validCalls(host store.Attachment, ttl time.Duration) []call {
	client := streamSocket(store.RoleClient, host.HostID, "client of "+host.ID)
	node := nodeOf("node of "+host.ID, "1")
	return []call{
		{"Claim", func(ctx context.Context, s store.Store) error { _, err := s.Claim(ctx, host, ttl); return err }},
		{"Current", func(ctx context.Context, s store.Store) error { _, err := s.Current(ctx, host.HostID); return err }},
		{"Ping", func(ctx context.Context, s store.Store) error {
			_, err := s.Ping(ctx, []store.Attachment{host}, ttl)
			return err
		}},
		{"LastSeen", func(ctx context.Context, s store.Store) error {
			_, err := s.LastSeen(ctx, []string{host.HostID})
			return err
		}},
		{"PutSockets", func(ctx context.Context, s store.Store) error {
			return s.PutSockets(ctx, []store.Attachment{client}, ttl)
		}},
		{"Sockets", func(ctx context.Context, s store.Store) error {
			_, err := s.Sockets(ctx, host.HostID, "", 10)
			return err
		}},
		{"DropSockets", func(ctx context.Context, s store.Store) error {
			return s.DropSockets(ctx, []store.SocketRef{client.SocketRef()})
		}},
		{"KeepNode", func(ctx context.Context, s store.Store) error { _, err := s.KeepNode(ctx, node, ttl); return err }},
		{"Nodes", func(ctx context.Context, s store.Store) error { _, err := s.Nodes(ctx); return err }},
		{"DropNode", func(ctx context.Context, s store.Store) error { return s.DropNode(ctx, node.ID, node.Incarnation) }},
		{"Detach", func(ctx context.Context, s store.Store) error { return s.Detach(ctx, host.Ref()) }},
		{"Retire", func(ctx context.Context, s store.Store) error {
			return s.Retire(ctx, host.Ref(), store.ReasonStale)
		}},
	}
}

func doneContext(e *env) {
	current := e.attach(socket("h", "s"))
	client := streamSocket(store.RoleClient, "h", "client of s")
	e.put(e.A, client)
	node := nodeOf("node of s", "1")
	e.keep(e.A, node, e.far, true, "no lease stood")

	done, cancel := context.WithCancel(e.ctx)
	cancel()
	for _, host := range []store.Attachment{current, generated(socket("h", "t"), current.Generation+1000)} {
		for _, c := range validCalls(host, e.far) {
			if err := c.call(done, e.A); !errors.Is(err, context.Canceled) {
				e.Errorf("%s with a context that is done = %v, want its error", c.name, err)
			}
		}
	}
	const rule = "a method whose context is already done changes nothing"
	e.wantSame(e.wantCurrent("h", "s", rule), current, rule)
	e.wantSockets("h", "", 10, rule, "client of s")
	e.wantNodes(rule, node)
}

func closeTwice(e *env) {
	for range 2 {
		if err := e.A.Close(); err != nil {
			e.Fatalf("Close = %v, want nil, also the second time", err)
		}
	}
}

func closedMethods(e *env) {
	a := e.attach(socket("h", "s"))
	if err := e.A.Close(); err != nil {
		e.Fatalf("Close = %v, want nil", err)
	}
	for _, c := range validCalls(a, e.far) {
		if err := c.call(e.ctx, e.A); !errors.Is(err, store.ErrClosed) {
			e.Errorf("%s after Close = %v, want ErrClosed", c.name, err)
		}
	}
	if sameHandle(e.A, e.B) {
		return
	}
	e.currentOn(e.B, "h", "s", "Close of one handle does not close another")
}

// sameHandle compares without a panic, whatever type a backend's handle is.
func sameHandle(a, b store.Store) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}
