// Cluster shows Dialback on several nodes: three relay processes that share a
// Redis, a load balancer that knows nothing of hosts, and what happens when a
// node is killed and when Redis is gone. It says what it does, step by step,
// and ends after about half a minute:
//
//	go run ./examples/cluster
//
// It needs redis-server, which it starts itself.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

func main() {
	goredis.SetLogger(silence{}) // it would tell each connection that fails
	if isNode() {
		exit(runNode())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		stop()
		exit(err)
	}
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run is the program. All that it starts has ended when it returns.
func run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	c, err := newCluster(ctx)
	if err != nil {
		return err
	}
	defer c.stop()
	return (&tour{out: out, cluster: c}).run(ctx)
}
