package relay

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/transport"
)

// tableInterval is how often the table of nodes is read.
const tableInterval = 2 * time.Second

// nodeTable keeps this node's lease, and knows which nodes live.
type nodeTable struct {
	srv *Server

	// Guarded by mu.
	mu        sync.Mutex
	nodes     map[string]store.Node // by incarnation
	draining  map[string]bool       // by ID
	refused   map[string]time.Time  // incarnations that refused a call, and when
	missing   map[string]time.Time  // incarnations that were not in the Store, and when
	startedAt time.Time             // of this process; see outrank
	beats     uint64                // renewals that the Store has confirmed
	unsure    bool                  // one has failed since: what it would have said is not known
	usurped   bool                  // another process has this node's ID
}

// run renews the lease and reads the table until the Server closes.
func (t *nodeTable) run() {
	t.read()
	beat := time.Now().Add(t.srv.cfg.NodeBeat)
	for wait(t.srv.ctx, min(tableInterval, time.Until(beat))) == nil {
		due := !time.Now().Before(beat)
		if due {
			beat = time.Now().Add(t.srv.cfg.NodeBeat)
		}
		switch {
		case t.srv.outage.out(): // its prober beats
		case due:
			t.beat()
		default:
			t.read()
		}
	}
}

// beat registers the node or renews its lease. A lease that had to be made anew,
// or that lacks renewals, means that the Store may have lost more.
func (t *nodeTable) beat() { t.srv.outage.observe(t.keep()) }

// keep is one call of the Store; the error is a failure of it. A process that has
// been superseded asks without renewing anything: a Store that has lost what was
// written last would not know any more whom it had replaced.
func (t *nodeTable) keep() error {
	s := t.srv
	ctx, cancel := s.storeContext()
	defer cancel()
	if t.isUsurped() {
		_, err := s.cfg.Store.Nodes(ctx)
		return err
	}
	lost, err := t.renew(ctx)
	if errors.Is(err, store.ErrRetired) && t.outrank(ctx) {
		lost, err = t.renew(ctx)
	}
	switch {
	case errors.Is(err, store.ErrRetired):
		t.mu.Lock()
		t.usurped = true
		t.mu.Unlock()
		s.spawn(s.superseded)
		return nil
	case lost:
		s.assertAll()
	}
	return err
}

// renew is one KeepNode. It reports whether the Store may have lost rows of this
// node: it says so, or may have said so in an answer that did not come.
func (t *nodeTable) renew(ctx context.Context) (lost bool, err error) {
	s := t.srv
	n := store.Node{ID: s.nodeID, URL: s.cfg.Node.URL, Incarnation: s.incarnation, Draining: s.draining()}
	t.mu.Lock()
	n.StartedAt, n.Beat = t.startedAt, t.beats+1
	t.mu.Unlock()
	created, err := s.cfg.Store.KeepNode(ctx, n, s.cfg.NodeLease)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.unsure = t.unsure || failed(err)
		return false, err
	}
	lost = created || t.unsure
	t.unsure, t.beats = false, max(t.beats, n.Beat)
	return lost, nil
}

// outrank makes a process that has never had its ID the one that started later,
// if the clock of the one that has it is ahead: the Store gives the ID to the
// later one. It reports whether that was so.
func (t *nodeTable) outrank(ctx context.Context) bool {
	t.mu.Lock()
	had := t.beats > 0
	t.mu.Unlock()
	if had {
		return false
	}
	list, err := t.srv.cfg.Store.Nodes(ctx)
	if err != nil {
		return false
	}
	for _, n := range list {
		if n.ID == t.srv.nodeID && n.Incarnation != t.srv.incarnation {
			t.mu.Lock()
			defer t.mu.Unlock()
			behind := t.startedAt.Before(n.StartedAt)
			if behind {
				t.startedAt = n.StartedAt.Add(time.Microsecond)
			}
			return behind
		}
	}
	return false
}

func (t *nodeTable) isUsurped() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.usurped
}

// superseded: another process has this node's ID. Its hosts belong there.
func (s *Server) superseded() {
	controls := s.registry.controls()
	if len(controls) > 0 {
		s.log.Error("another process has taken this node id; closing its hosts", "node", s.nodeID, "hosts", len(controls))
	}
	for _, c := range controls {
		c.retire(store.ReasonGone, transport.CloseRestart, "another process has taken this node's id")
	}
}

// read reads the table. A node that has refused a call is tried again after the
// next reading.
func (t *nodeTable) read() {
	ctx, cancel := t.srv.storeContext()
	defer cancel()
	list, err := t.srv.cfg.Store.Nodes(ctx)
	t.srv.outage.observe(err)
	if err != nil {
		return
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
}

// isDraining reports whether the node with that ID takes nothing new.
func (t *nodeTable) isDraining(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.draining[id]
}

// store puts what was read in place.
func (t *nodeTable) store(m map[string]store.Node, draining map[string]bool) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
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
	if !known && !dead && !t.srv.outage.out() {
		t.read()
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
	return n, known, dead || missing
}

// byID finds the living node with that ID.
func (t *nodeTable) byID(id string) (store.Node, bool) {
	for again := false; ; again = true {
		t.mu.Lock()
		for _, n := range t.nodes {
			if n.ID == id && n.Incarnation != t.srv.incarnation {
				t.mu.Unlock()
				return n, true
			}
		}
		t.mu.Unlock()
		if again || t.srv.outage.out() {
			return store.Node{}, false
		}
		t.read()
	}
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

// callable reports whether n can be called: it says where, and has our key.
func (s *Server) callable(n store.Node) bool { return s.shared && n.URL != "" }

// drop ends the lease.
func (t *nodeTable) drop() {
	ctx, cancel := context.WithTimeout(context.Background(), t.srv.cfg.StoreTimeout)
	defer cancel()
	t.srv.cfg.Store.DropNode(ctx, t.srv.nodeID, t.srv.incarnation)
}

func (s *Server) rand() float64 {
	if s.cfg.Rand != nil {
		return s.cfg.Rand()
	}
	return rand.Float64()
}
