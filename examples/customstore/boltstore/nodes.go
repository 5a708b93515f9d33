package boltstore

import (
	"context"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/dialback/dialback/store"
)

// replacedKept is how many replaced incarnations of a node are remembered.
const replacedKept = 16

// node is what is remembered of one node ID: a value of nodeBucket.
type node struct {
	Node     store.Node // the incarnation that holds the ID, or held it last
	Expires  time.Time  // of its lease
	Replaced []replaced // the oldest first
}

type replaced struct {
	Incarnation string
	Until       time.Time
}

// keep says whether no live lease of this incarnation stood, or one without its
// last renewals.
func (k *node) keep(n store.Node, lease time.Duration, now time.Time) (created bool, err error) {
	k.Replaced = slices.DeleteFunc(k.Replaced, func(r replaced) bool { return !now.Before(r.Until) })
	for _, r := range k.Replaced {
		if r.Incarnation == n.Incarnation {
			return false, store.ErrRetired
		}
	}
	live := now.Before(k.Expires)
	created = !live || k.Node.Beat+1 < n.Beat
	if old := k.Node.Incarnation; old != "" && old != n.Incarnation {
		if live && n.StartedAt.Before(k.Node.StartedAt) {
			return false, store.ErrRetired
		}
		created = true
		k.Replaced = append(k.Replaced, replaced{old, now.Add(store.TombstoneTTL)})
		k.Replaced = k.Replaced[max(0, len(k.Replaced)-replacedKept):]
	}
	k.Node, k.Expires = n, now.Add(lease)
	return created, nil
}

// save writes k, whose incarnation is remembered when its lease has run out.
func (k *node) save(tx *bbolt.Tx) error {
	return put(tx, nodeBucket, []byte(k.Node.ID), k.Expires.Add(store.TombstoneTTL), k)
}

// KeepNode implements store.Nodes.
func (s *Store) KeepNode(ctx context.Context, n store.Node, lease time.Duration) (created bool, err error) {
	if err := store.CheckKeepNode(n, lease); err != nil {
		return false, err
	}
	n.StartedAt = n.StartedAt.UTC()
	return update(ctx, s, func(tx *bbolt.Tx) (bool, error) {
		now := time.Now()
		k := new(node)
		if _, err := get(tx, nodeBucket, []byte(n.ID), now, k); err != nil {
			return false, err
		}
		created, err := k.keep(n, lease, now)
		if err != nil {
			return false, err
		}
		return created, k.save(tx)
	})
}

// Nodes implements store.Nodes. The order of keys is that of IDs.
func (s *Store) Nodes(ctx context.Context) ([]store.Node, error) {
	return view(ctx, s, func(tx *bbolt.Tx) ([]store.Node, error) {
		now := time.Now()
		var live []store.Node
		err := tx.Bucket([]byte(nodeBucket)).ForEach(func(_, entry []byte) error {
			var k node
			if err := decode(entry, &k); err != nil {
				return err
			}
			if now.Before(k.Expires) {
				live = append(live, k.Node)
			}
			return nil
		})
		return live, err
	})
}

// DropNode implements store.Nodes.
func (s *Store) DropNode(ctx context.Context, id, incarnation string) error {
	if err := store.CheckDropNode(id, incarnation); err != nil {
		return err
	}
	_, err := update(ctx, s, func(tx *bbolt.Tx) (struct{}, error) {
		now := time.Now()
		k := new(node)
		found, err := get(tx, nodeBucket, []byte(id), now, k)
		if err != nil || !found || k.Node.Incarnation != incarnation || !now.Before(k.Expires) {
			return struct{}{}, err
		}
		k.Expires = now
		return struct{}{}, k.save(tx)
	})
	return err
}
