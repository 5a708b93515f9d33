package memory_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/memory"
)

// A host attaches, attaches again over a new socket, and leaves.
func ExampleNew() {
	ctx := context.Background()
	s := memory.New()
	defer s.Close()

	attach := func(id string) store.Claimed {
		c, err := s.Claim(ctx, store.Attachment{
			ID:     id,
			HostID: "laptop",
			NodeID: "node-a",
			Role:   store.RoleHost,
		}, 5*time.Minute)
		if err != nil {
			fmt.Println(err)
		}
		return c
	}
	first := attach("socket-1").Current
	second := attach("socket-2")
	fmt.Println(second.Previous.ID, second.Previous.RetiredReason)

	current, err := s.Ping(ctx, []store.Attachment{first, second.Current}, 5*time.Minute)
	fmt.Println(current, err)

	// The late end of the first socket does not touch its successor.
	_ = s.Detach(ctx, first.Ref())
	now, err := s.Current(ctx, "laptop")
	fmt.Println(now.ID, err)

	_ = s.Detach(ctx, second.Current.Ref())
	_, err = s.Current(ctx, "laptop")
	fmt.Println(errors.Is(err, store.ErrNotFound))

	// Output:
	// socket-1 replaced
	// [false true] <nil>
	// socket-2 <nil>
	// true
}
