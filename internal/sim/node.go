package sim

import (
	"context"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/dialback/dialback/relay"
)

// nodeProc is one process of a node.
type nodeProc struct {
	*process
	id       string // its node ID
	srv      *relay.Server
	http     *http.Server
	listener net.Listener
	seam     *seam
	ended    chan struct{} // closed when it is reaped
}

// nodeKey authenticates the nodes to each other.
var nodeKey = []byte("sim: no secret of anybody's")

// startNode starts a process for a slot. Its node ID is the slot's, or another.
func (w *World) startNode(slot string, id string) *nodeProc {
	p := newProcess(w, slot, w.label(slot))
	n := &nodeProc{process: p, id: id, seam: newSeam(w, p), ended: make(chan struct{})}
	w.mu.Lock()
	w.procs[p] = n
	w.mu.Unlock()
	w.tr.log("%s starts as node %s", p.label, id)
	srv, err := relay.New(relay.Config{
		Store: n.seam, AuthorizeClient: relay.AllowAll, Rand: newRandom(w.schedule.Seed, p.label).Float64,
		// The observers tell sockets by the address that they come from.
		AuthorizeHost: func(_ context.Context, r *http.Request, _ string) (relay.Identity, error) {
			return relay.Identity{Meta: []byte(r.RemoteAddr)}, nil
		},
		Node: relay.Node{ID: id, URL: "http://" + slot, Key: nodeKey, DialContext: w.network.dialer(p, nil)},
	})
	if err != nil {
		w.tr.violated("sim", "relay.New: %v", err)
		return n
	}
	n.srv = srv
	ln, err := w.network.listen(p, slot)
	if err != nil {
		w.tr.violated("sim", "listen: %v", err)
		return n
	}
	n.listener = ln
	n.http = &http.Server{Handler: srv, ErrorLog: w.quiet}
	w.mu.Lock()
	w.slots[slot] = n // a Store that hangs may have made it wait
	w.mu.Unlock()
	go n.serve(ln)
	return n
}

func (n *nodeProc) serve(ln net.Listener) {
	n.http.Serve(ln)
}

// degradedSince reports whether a call of the Store has failed for the node
// since a time: it may take the Store for out.
func (n *nodeProc) degradedSince(t time.Duration) bool { return n.seam.failedWithin(t) }

// crash ends the process as kill -9 does, or as a power cut does: its
// connections break, or fall silent. Its goroutines are reaped; nothing of it
// gets out any more.
func (n *nodeProc) crash(vanish bool) {
	n.w.tr.log("%s crashes (vanish: %v)", n.label, vanish)
	n.kill()
	n.listener.Close() // its address refuses
	n.http.Close()
	n.w.network.drop(n.process, vanish)
	n.w.tasks.Go(n.reap)
}

func (n *nodeProc) reap() {
	defer close(n.ended)
	n.srv.Close()
}

// shutdown drains the node and ends its process.
func (n *nodeProc) shutdown(within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	n.srv.Shutdown(ctx)
	n.w.tr.log("%s has drained", n.label)
	n.http.Close()
}

// nodeOf is the process of a node.
func (w *World) nodeOf(p *process) *nodeProc {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.procs[p]
}

// nodes lists all processes of nodes, those that have ended too.
func (w *World) nodes() []*nodeProc {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.procs))
}

// at is the process that holds a slot now; nil if it is down.
func (w *World) at(slot string) *nodeProc {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.slots[slot]
	if n == nil || n.isDead() {
		return nil
	}
	return n
}

// nodeNamed is the process of an incarnation, nil if there is none.
func (w *World) nodeNamed(incarnation string) *nodeProc {
	for _, n := range w.nodes() {
		if n.seam.is(incarnation) {
			return n
		}
	}
	return nil
}

func (s *seam) is(incarnation string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.incarnation == incarnation
}
