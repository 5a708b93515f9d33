package redis_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/redis"
)

// A node makes its client and its Store; those of other nodes with the same
// server and prefix share the data.
func ExampleNew() {
	server := miniredis.NewMiniRedis() // stands for a real one
	if err := server.Start(); err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()

	client, err := redis.Open("redis://" + server.Addr())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Close() }()
	s := redis.New(client, &redis.Options{Prefix: "fleet-1:"})

	ctx := context.Background()
	_, err = s.Current(ctx, "laptop")
	fmt.Println(errors.Is(err, store.ErrNotFound))
	_, err = s.Claim(ctx, store.Attachment{
		ID:     "socket-1",
		HostID: "laptop",
		NodeID: "node-a",
		Role:   store.RoleHost,
	}, 5*time.Minute)
	fmt.Println(err)
	a, err := s.Current(ctx, "laptop")
	fmt.Println(a.NodeID, err)

	// Output:
	// true
	// <nil>
	// node-a <nil>
}
