package relay

import (
	"time"

	"github.com/dialback/dialback/store"
)

// read reads the table, and reports whether it could. A node that has refused a
// call is tried again after the first reading that is tableInterval later.
func (t *nodeTable) read() bool {
	ctx, cancel := t.srv.storeContext()
	defer cancel()
	list, err := t.srv.cfg.Store.Nodes(ctx)
	t.srv.outage.observe(err)
	if err != nil {
		return false
	}
	m := make(map[string]store.Node, len(list))
	draining := make(map[string]bool)
	for _, n := range list {
		m[n.Incarnation] = n
		if n.Draining && n.Incarnation != t.srv.incarnation {
			draining[n.ID] = true
		}
	}
	t.store(m, draining)
	if len(draining) > 0 {
		// What passes through a node that drains would end with it.
		for _, h := range t.srv.registry.all() {
			h.dropVia(t.isDraining)
			t.srv.registry.release(h)
		}
	}
	return true
}

// isDraining reports whether the node with that ID takes nothing new.
func (t *nodeTable) isDraining(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.draining[id]
}

// store puts what was read in place. A node that is not in it any more may have
// stopped, or the Store may have lost its lease, until it is renewed.
func (t *nodeTable) store(m map[string]store.Node, draining map[string]bool) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for inc, n := range t.nodes {
		if _, ok := m[inc]; !ok {
			if t.lost == nil {
				t.lost = make(map[string]lostNode)
			}
			t.lost[inc] = lostNode{n, now}
		}
	}
	for inc, n := range t.lost {
		if _, ok := m[inc]; ok || now.Sub(n.at) >= t.srv.cfg.NodeLease {
			delete(t.lost, inc)
		}
	}
	t.nodes, t.draining = m, draining
	for inc, at := range t.refused {
		if now.Sub(at) >= tableInterval {
			delete(t.refused, inc)
		}
	}
	for inc, at := range t.missing {
		if now.Sub(at) >= tableInterval {
			delete(t.missing, inc)
		}
	}
	for id, at := range t.absentIDs {
		if now.Sub(at) >= tableInterval {
			delete(t.absentIDs, id)
		}
	}
}

// suspect takes a node for dead that refused a connection: sooner than its
// lease runs out.
func (t *nodeTable) suspect(incarnation string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refused == nil {
		t.refused = make(map[string]time.Time)
	}
	t.refused[incarnation] = time.Now()
}

// suspectedAt is when a node refused a connection, if it did so lately.
func (t *nodeTable) suspectedAt(incarnation string) (at time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok = t.refused[incarnation]
	return at, ok
}

// alive reports whether the node of that incarnation lives. This node lives by
// definition; a miss in the table asks the Store.
func (t *nodeTable) alive(incarnation string) bool {
	if incarnation == t.srv.incarnation {
		return true
	}
	_, ok := t.byIncarnation(incarnation)
	return ok
}

// byIncarnation finds a living node.
func (t *nodeTable) byIncarnation(incarnation string) (store.Node, bool) {
	n, known, dead := t.look(incarnation)
	if !known && !dead && !t.srv.outage.out() && t.read() {
		if n, known, dead = t.look(incarnation); !known {
			t.miss(incarnation)
		}
	}
	return n, known && !dead
}

// miss remembers for a while that an incarnation is not in the Store, so that
// requests for the hosts of a dead node do not each ask.
func (t *nodeTable) miss(incarnation string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.missing == nil {
		t.missing = make(map[string]time.Time)
	}
	t.missing[incarnation] = time.Now()
}

func (t *nodeTable) look(incarnation string) (n store.Node, known, dead bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, known = t.nodes[incarnation]
	_, dead = t.refused[incarnation]
	_, missing := t.missing[incarnation]
	return n, known, dead || missing && !known
}

// lists reports whether an incarnation is in the table, without asking the Store.
func (t *nodeTable) lists(incarnation string) bool {
	_, known, _ := t.look(incarnation)
	return known
}

// find finds a node in the table, this one too.
func (t *nodeTable) find(is func(store.Node) bool) (store.Node, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.nodes {
		if is(n) {
			return n, true
		}
	}
	return store.Node{}, false
}

// recent finds a node that is in the table, or was until less than NodeLease ago:
// the Store may have lost its lease.
func (t *nodeTable) recent(is func(store.Node) bool) (store.Node, bool) {
	if n, ok := t.find(is); ok {
		return n, true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.lost {
		if is(n.Node) {
			return n.Node, true
		}
	}
	return store.Node{}, false
}

// byID finds another node by its ID. A miss in the table asks the Store, and is
// one only if the node was not there lately either.
func (t *nodeTable) byID(id string) (store.Node, bool) {
	is := func(n store.Node) bool { return n.ID == id && n.Incarnation != t.srv.incarnation }
	if n, ok := t.find(is); ok {
		return n, true
	}
	if !t.absent(id) && !t.srv.outage.out() {
		t.read()
	}
	return t.recent(is)
}

// absent reports whether a node ID was looked for in the last tableInterval, and
// notes that it is now: an old ticket must not have the Store read each time that
// somebody brings it.
func (t *nodeTable) absent(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.absentIDs[id]; ok {
		return true
	}
	if t.absentIDs == nil {
		t.absentIDs = make(map[string]time.Time)
	}
	t.absentIDs[id] = time.Now()
	return false
}

// others returns the living nodes that can be called, but this one.
func (t *nodeTable) others() []store.Node {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []store.Node
	for inc, n := range t.nodes {
		if _, dead := t.refused[inc]; !dead && inc != t.srv.incarnation && t.srv.callable(n) {
			list = append(list, n)
		}
	}
	return list
}

// everyone returns all nodes that may live: also those that have refused a call,
// and those that were in the table until lately, unless their address is
// another's by now. What nobody may miss is said to them all.
func (t *nodeTable) everyone() []store.Node {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []store.Node
	taken := make(map[string]bool)
	for inc, n := range t.nodes {
		taken[n.URL] = true
		if inc != t.srv.incarnation && t.srv.callable(n) {
			list = append(list, n)
		}
	}
	for inc, n := range t.lost {
		if inc != t.srv.incarnation && t.srv.callable(n.Node) && !taken[n.URL] {
			list = append(list, n.Node)
		}
	}
	return list
}

// successor finds the process that has the ID of another one now, or else its
// address.
func (t *nodeTable) successor(of store.Node) (store.Node, bool) {
	n, ok := t.find(func(n store.Node) bool { return n.ID == of.ID && n.Incarnation != of.Incarnation })
	if !ok {
		n, ok = t.find(func(n store.Node) bool {
			return n.URL == of.URL && n.Incarnation != of.Incarnation && !n.StartedAt.Before(of.StartedAt)
		})
	}
	return n, ok
}

// callable reports whether n can be called: it says where, and has our key.
func (s *Server) callable(n store.Node) bool { return s.shared && n.URL != "" }
