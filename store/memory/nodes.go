package memory

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/dialback/dialback/store"
)

// replacedKept is how many replaced incarnations of a node are remembered.
const replacedKept = 16

// node is one node ID: the incarnation that holds it, or held it last, and
// those that it replaced.
type node struct {
	rec      store.Node
	expires  int64 // end of the lease
	replaced []replacement
}

type replacement struct {
	incarnation string
	until       int64
}

// KeepNode implements store.Nodes.
func (s *Store) KeepNode(ctx context.Context, n store.Node, lease time.Duration) (created bool, err error) {
	if err := store.CheckKeepNode(n, lease); err != nil {
		return false, err
	}
	if err := s.lock(ctx); err != nil {
		return false, err
	}
	defer s.mu.Unlock()
	now := s.now()
	s.expireNodesLocked(now)
	k := s.nodes[n.ID]
	if k == nil {
		k = &node{rec: n} // not live yet
		s.nodes[n.ID] = k
	}
	return k.keep(n, lease, now)
}

// Nodes implements store.Nodes.
func (s *Store) Nodes(ctx context.Context) ([]store.Node, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	now := s.now()
	var ns []store.Node
	for _, k := range s.nodes {
		if k.live(now) {
			ns = append(ns, k.rec)
		}
	}
	slices.SortFunc(ns, func(a, b store.Node) int { return strings.Compare(a.ID, b.ID) })
	return ns, nil
}

// DropNode implements store.Nodes.
func (s *Store) DropNode(ctx context.Context, id, incarnation string) error {
	if err := store.CheckDropNode(id, incarnation); err != nil {
		return err
	}
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	now := s.now()
	if k := s.nodes[id]; k != nil && k.rec.Incarnation == incarnation && k.live(now) {
		k.expires = now.mono
	}
	return nil
}

func (s *Store) expireNodesLocked(now moment) {
	for id, k := range s.nodes {
		if k.expire(now) {
			delete(s.nodes, id)
		}
	}
}

func (k *node) live(now moment) bool { return now.mono < k.expires }

func (k *node) keep(n store.Node, lease time.Duration, now moment) (created bool, err error) {
	for _, r := range k.replaced {
		if r.incarnation == n.Incarnation {
			return false, store.ErrRetired
		}
	}
	n.StartedAt = instant(n.StartedAt.UnixMicro())
	created = !k.live(now) || guardBeat && k.rec.Beat+1 < n.Beat
	if old := k.rec.Incarnation; old != n.Incarnation {
		if guardStart && k.live(now) && n.StartedAt.Before(k.rec.StartedAt) {
			return false, store.ErrRetired
		}
		created = true
		k.replaced = append(k.replaced, replacement{old, add(now.mono, store.TombstoneTTL)})
		if extra := len(k.replaced) - replacedKept; extra > 0 {
			k.replaced = slices.Delete(k.replaced, 0, extra)
		}
	}
	k.rec = n
	k.expires = add(now.mono, lease)
	return created, nil
}

// expire drops the incarnations whose time has come and reports whether
// nothing is left to remember.
func (k *node) expire(now moment) bool {
	k.replaced = slices.DeleteFunc(k.replaced, func(r replacement) bool { return now.mono >= r.until })
	return len(k.replaced) == 0 && now.mono >= add(k.expires, store.TombstoneTTL)
}
