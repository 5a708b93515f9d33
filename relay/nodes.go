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
	// Immutable after New.
	srv  *Server
	born time.Time

	// Guarded by mu.
	mu        sync.Mutex
	nodes     map[string]store.Node // by incarnation
	draining  map[string]bool       // by ID
	refused   map[string]time.Time  // incarnations that refused a call, and when
	missing   map[string]time.Time  // incarnations that were not in the Store, and when
	absentIDs map[string]time.Time  // node IDs that were not in the table, and when they were looked for
	lost      map[string]lostNode   // that were in the table less than NodeLease ago
	startedAt time.Time             // of this process; see outrank
	beats     uint64                // renewals that the Store has confirmed
	unsure    bool                  // one has failed since: what it would have said is not known
	again     bool                  // the next one has the hosts confirmed once more
	usurped   bool                  // another process has this node's ID
}

// lostNode is a node that is not in the table any more.
type lostNode struct {
	store.Node
	at time.Time
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
func (t *nodeTable) beat() {
	ctx, cancel := t.srv.storeContext()
	defer cancel()
	t.srv.outage.observe(t.keep(ctx))
}

// keep is one call of the Store; the error is a failure of it. A process that has
// been superseded asks without renewing anything: a Store that has lost what was
// written last would not know any more whom it had replaced.
func (t *nodeTable) keep(ctx context.Context) error {
	s := t.srv
	if t.isUsurped() {
		_, err := s.cfg.Store.Nodes(ctx)
		return err
	}
	n := t.record()
	lost, err := t.renew(ctx, n)
	if errors.Is(err, store.ErrRetired) {
		if err = t.outrank(ctx, n); err == nil {
			lost, err = t.renew(ctx, t.record())
		}
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

// record is what the next renewal says of this process.
func (t *nodeTable) record() store.Node {
	s := t.srv
	n := store.Node{ID: s.nodeID, URL: s.cfg.Node.URL, Incarnation: s.incarnation, Draining: s.draining()}
	t.mu.Lock()
	defer t.mu.Unlock()
	n.StartedAt, n.Beat = t.startedAt, t.beats+1
	return n
}

// renew is one KeepNode. It reports whether the Store may have lost rows of this
// node: it says so, or may have said so in an answer that did not come; or it did
// the last time, and may have lost what was written again then, as a claim may be
// lost.
func (t *nodeTable) renew(ctx context.Context, n store.Node) (lost bool, err error) {
	created, err := t.srv.cfg.Store.KeepNode(ctx, n, t.srv.cfg.NodeLease)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.unsure = t.unsure || failed(err)
		return false, err
	}
	news := created || t.unsure
	lost = news || t.again
	t.again, t.unsure, t.beats = news, false, max(t.beats, n.Beat)
	return lost, nil
}

// outrank decides what a refused renewal of n means. The Store gives an ID to the
// process that started later, by clocks that may differ; but one that has just
// started, and never had the ID, is the later one. It gets a StartedAt above that
// of the one that has it. The result is nil if the renewal is worth another try,
// ErrRetired if this process is superseded, and else a failure of the Store.
func (t *nodeTable) outrank(ctx context.Context, n store.Node) error {
	t.mu.Lock()
	had, raised := t.beats > 0, t.startedAt.After(n.StartedAt)
	t.mu.Unlock()
	switch {
	case raised: // by another call, meanwhile
		return nil
	case had, time.Since(t.born) > t.srv.cfg.NodeLease:
		return store.ErrRetired
	}
	list, err := t.srv.cfg.Store.Nodes(ctx)
	if err != nil {
		return err
	}
	for _, other := range list {
		if other.ID != n.ID || other.Incarnation == n.Incarnation {
			continue
		}
		if !other.StartedAt.After(n.StartedAt) {
			return store.ErrRetired // it is not for the clock
		}
		t.mu.Lock()
		t.startedAt = other.StartedAt.Add(time.Microsecond)
		t.mu.Unlock()
	}
	return nil
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
		c.supersede()
	}
}

func (c *controlConn) supersede() {
	c.retire(store.ReasonGone, transport.CloseRestart, "another process has taken this node's id")
}

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
