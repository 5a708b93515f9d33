package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/memory"
	"github.com/dialback/dialback/store/redis"
)

// nodeFlags are the flags of one relay node among several.
type nodeFlags struct {
	store     *string
	id        *string
	advertise *string
	keyFile   *string
}

func newNodeFlags(f *flags) *nodeFlags {
	return &nodeFlags{
		store:     f.String("store", "memory", "where sockets are remembered: memory, or the `URL` of a Redis server, of its Sentinels (?master_name=M&addr=H2:P) or of a Cluster (?addr=H2:P)"),
		id:        f.String("node-id", "", "this node's `name` among several; empty for a random one"),
		advertise: f.String("advertise", "", "the `URL` at which other nodes reach this one"),
		keyFile:   f.String("node-key-file", "", "a `file` with the key that all nodes share, 16 bytes or more"),
	}
}

// node reads the flags that name this node.
func (n *nodeFlags) node() (relay.Node, error) {
	node := relay.Node{ID: *n.id, URL: *n.advertise}
	if *n.keyFile != "" {
		key, err := os.ReadFile(*n.keyFile)
		if err != nil {
			return node, fmt.Errorf("%w: --node-key-file: %v", errUsage, err)
		}
		node.Key = bytes.TrimSpace(key)
		if len(node.Key) == 0 {
			return node, fmt.Errorf("%w: --node-key-file: the file is empty", errUsage)
		}
	}
	if node.URL != "" && *n.keyFile == "" {
		return node, fmt.Errorf("%w: --advertise needs --node-key-file", errUsage)
	}
	return node, nil
}

// open opens the Store; end closes it and its client.
func (n *nodeFlags) open(log *slog.Logger) (st store.Store, end func(), err error) {
	if *n.store == "memory" {
		st := memory.New()
		return st, func() { st.Close() }, nil
	}
	goredis.SetLogger(clientLog{log})
	client, err := redis.Open(*n.store)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: --store: not memory, and not a Redis URL", errUsage)
	}
	rs := redis.New(client, nil)
	return rs, func() {
		rs.Close()
		client.Close()
	}, nil
}

// clientLog takes what go-redis would print by itself: each connection that
// fails, of which the relay's own log tells what it means.
type clientLog struct{ log *slog.Logger }

// Printf implements the Logging of go-redis.
func (l clientLog) Printf(ctx context.Context, format string, v ...any) {
	if l.log.Enabled(ctx, slog.LevelDebug) {
		l.log.DebugContext(ctx, "redis client", "said", fmt.Sprintf(format, v...))
	}
}
