package redis

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dialback/dialback/store"
)

// indexSlack is for how long the ID of a node stays listed after its lease has
// run out. Nodes looks at the leases of all that are listed.
const indexSlack = time.Hour

// KeepNode implements store.Nodes. The lease is one script; before it the ID is
// listed, in another slot.
func (s *Store) KeepNode(ctx context.Context, n store.Node, lease time.Duration) (created bool, err error) {
	if err := store.CheckKeepNode(n, lease); err != nil {
		return false, err
	}
	if err := s.ready(ctx); err != nil {
		return false, err
	}
	ttl := millis(lease)
	list := command{indexScript, s.keys.nodes(), []any{n.ID, ttl + indexSlack.Milliseconds()}}
	if _, err := s.do(ctx, "keep node", list); err != nil {
		return false, err
	}
	args := append([]any{n.Incarnation, ttl, rand.Text(), formatTime(n.StartedAt), n.Beat}, nodeFields(n)...)
	replies, err := s.do(ctx, "keep node", command{keepScript, s.keys.node(n.ID), args})
	if err != nil {
		return false, err
	}
	switch replies[0] {
	case int64(1):
		return true, nil
	case int64(0):
		return false, nil
	case int64(-1):
		return false, store.ErrRetired
	}
	return false, fmt.Errorf("redis: keep node: %w", errReply)
}

// Nodes implements store.Nodes: it reads the list of IDs and then their leases.
func (s *Store) Nodes(ctx context.Context) ([]store.Node, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	replies, err := s.do(ctx, "nodes", command{nodesScript, s.keys.nodes(), nil})
	if err != nil {
		return nil, err
	}
	ids, err := stringsOf(replies[0])
	if err != nil {
		return nil, fmt.Errorf("redis: nodes: %w", err)
	}
	var ns []store.Node
	for batch := range slices.Chunk(ids, maxBatch) {
		commands := make([]command, len(batch))
		for i, id := range batch {
			commands[i] = command{leaseScript, s.keys.node(id)[:1], nil}
		}
		leases, err := s.do(ctx, "nodes", commands...)
		if err != nil {
			return nil, err
		}
		for i, id := range batch {
			switch n, live, err := parseNode(id, leases[i]); {
			case err != nil:
				return nil, fmt.Errorf("redis: nodes: %w", err)
			case live:
				ns = append(ns, n)
			}
		}
	}
	slices.SortFunc(ns, func(a, b store.Node) int { return strings.Compare(a.ID, b.ID) })
	return ns, nil
}

// DropNode implements store.Nodes. It is one script.
func (s *Store) DropNode(ctx context.Context, id, incarnation string) error {
	if err := store.CheckDropNode(id, incarnation); err != nil {
		return err
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	_, err := s.do(ctx, "drop node", command{unkeepScript, s.keys.node(id)[:1], []any{incarnation}})
	return err
}

// nodeFields lists what the script does not look at.
func nodeFields(n store.Node) []any {
	draining := ""
	if n.Draining {
		draining = "1"
	}
	return []any{"url", n.URL, "draining", draining}
}

func parseNode(id string, reply any) (n store.Node, live bool, err error) {
	kv, err := stringsOf(reply)
	if err != nil || len(kv) == 0 {
		return store.Node{}, false, err
	}
	n.ID = id
	var p parser
	for i := 0; i+1 < len(kv); i += 2 {
		switch name, value := kv[i], kv[i+1]; name {
		case "inc":
			n.Incarnation = value
		case "url":
			n.URL = value
		case "at":
			n.StartedAt = p.time(value)
		case "beat":
			n.Beat = p.uint(value)
		case "draining":
			n.Draining = value != ""
		}
	}
	return n, true, p.err
}
