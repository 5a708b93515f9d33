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

	mu    sync.Mutex
	nodes map[string]store.Node // by incarnation
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

// beat registers the node or renews its lease. A lease that had to be made anew
// means that the Store may have lost more.
func (t *nodeTable) beat() error {
	s := t.srv
	ctx, cancel := s.storeContext()
	created, err := s.cfg.Store.KeepNode(ctx, store.Node{
		ID: s.nodeID, URL: s.cfg.Node.URL, Incarnation: s.incarnation, StartedAt: s.startedAt, Draining: s.draining(),
	}, s.cfg.NodeLease)
	cancel()
	switch {
	case errors.Is(err, store.ErrRetired):
		s.spawn(s.superseded)
		return nil
	case err != nil:
		s.outage.observe(err)
	case created:
		s.assertAll()
	}
	return err
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

func (t *nodeTable) read() {
	ctx, cancel := t.srv.storeContext()
	defer cancel()
	list, err := t.srv.cfg.Store.Nodes(ctx)
	t.srv.outage.observe(err)
	if err != nil {
		return
	}
	m := make(map[string]store.Node, len(list))
	for _, n := range list {
		m[n.Incarnation] = n
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.nodes = m
}

// alive reports whether the node of that incarnation has a lease. This node
// lives by definition; a miss in the table asks the Store.
func (t *nodeTable) alive(incarnation string) bool {
	if incarnation == t.srv.incarnation {
		return true
	}
	if t.known(incarnation) {
		return true
	}
	if !t.srv.outage.out() {
		t.read()
	}
	return t.known(incarnation)
}

func (t *nodeTable) known(incarnation string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.nodes[incarnation]
	return ok
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
