package sim

import (
	"fmt"
	"io"
	"log"
	"sync"
	"sync/atomic"
	"time"
)

// World is one run of a schedule.
type World struct {
	// Immutable after newWorld.
	schedule *Schedule
	tr       *Trace
	ledger   *ledger
	network  *network
	wire     *wire
	outcomes *outcomes
	causes   *causes
	clients  *process // all of them
	quiet    *log.Logger

	tasks   sync.WaitGroup
	asking  sync.WaitGroup // clients
	ending  atomic.Bool    // everything is being closed
	closers []func()       // owned by Run

	// Guarded by mu.
	mu       sync.Mutex
	procs    map[*process]*nodeProc
	slots    map[string]*nodeProc
	leaving  map[string]bool // slots that drain
	hosts    map[string][]*hostProc
	homes    map[string]int
	slow     map[string]time.Duration
	labels   map[string]int
	finalIDs int
}

// Result is how a run ended.
type Result struct {
	Schedule   *Schedule
	Violations []string // empty: every invariant held
	Trace      *Trace
	Ends       map[string]int // requests and streams by how they ended
}

// Run runs a schedule. It must be called in a synctest bubble, from the
// goroutine of its test, and returns when everything has been closed again.
func Run(s *Schedule) *Result {
	w := newWorld(s)
	w.start()
	for _, st := range s.Steps {
		time.Sleep(st.At - time.Since(w.tr.start))
		w.tr.log("--- %s", st.Text)
		st.run(w)
		if w.tr.failed() {
			break
		}
	}
	if !w.tr.failed() {
		w.settle()
	}
	w.end()
	w.tr.mu.Lock()
	defer w.tr.mu.Unlock()
	return &Result{Schedule: s, Violations: w.tr.violations, Trace: w.tr, Ends: w.outcomes.ends}
}

func newWorld(s *Schedule) *World {
	w := &World{
		schedule: s, tr: newTrace(), quiet: log.New(io.Discard, "", 0),
		procs: make(map[*process]*nodeProc), slots: make(map[string]*nodeProc), leaving: make(map[string]bool),
		hosts: make(map[string][]*hostProc), homes: make(map[string]int), slow: make(map[string]time.Duration), labels: make(map[string]int),
	}
	w.ledger = newLedger(w.tr)
	w.network = newNetwork(w)
	w.wire = newWire(w)
	w.outcomes = newOutcomes(w)
	w.causes = newCauses(w)
	w.clients = newProcess(w, clientName, clientName)
	for h, home := range s.homes {
		w.homes[h] = home
	}
	return w
}

// start starts all nodes, and then all hosts.
func (w *World) start() {
	w.startOldRelay()
	for _, slot := range w.schedule.slots() {
		w.startNode(slot, slot)
	}
	for _, h := range w.schedule.Hosts {
		w.startHost(h.Name)
	}
}

// label is the name of an actor's next process.
func (w *World) label(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.labels[name]++
	return fmt.Sprintf("%s#%d", name, w.labels[name])
}

func (w *World) home(host string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.homes[host]
}

func (w *World) slowness(host string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.slow[host]
}

// takes reports whether a load balancer that checks health leads to a slot.
func (w *World) takes(slot string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.slots[slot]
	return n != nil && !n.isDead() && !w.leaving[slot]
}

// clientSlot is where the load balancer leads a client that would go to a slot.
func (w *World) clientSlot(slot string) string {
	slots := w.schedule.slots()
	for i, s := range slots {
		if s != slot {
			continue
		}
		for k := range slots {
			if at := slots[(i+k)%len(slots)]; w.takes(at) {
				return at
			}
		}
	}
	return slot
}

// settleFor is how long everything may take to be well again once all faults
// have ended: longer than StaleAfter and than the minute that a host stays away
// that was replaced again and again.
const settleFor = 150 * time.Second

// settle ends all faults and then requires that every host is reached from
// every node, in every way.
func (w *World) settle() {
	w.tr.log("--- all faults end")
	w.heal()
	time.Sleep(settleFor)
	if w.tr.failed() {
		return
	}
	w.tr.log("--- every host from every node")
	var checks sync.WaitGroup
	for i, h := range w.schedule.Hosts {
		for n, slot := range w.schedule.slots() {
			for _, a := range w.finalAsks(h, slot, i == n) {
				checks.Go(func() { w.do(a) })
			}
		}
	}
	checks.Wait()
	w.asking.Wait() // longestWait at most
	if ids := w.outcomes.open(); len(ids) > 0 {
		w.tr.violated("I3 bound", "%v have not ended", ids)
	}
	time.Sleep(15 * time.Second) // spares that are being dialed
	w.countLeft()
	w.judgeLost()
}

// countLeft requires that no node counts anything that is over: each host has
// one control socket in all, and nobody has a stream or waits for one.
func (w *World) countLeft() {
	attached := 0
	for _, slot := range w.schedule.slots() {
		st := w.at(slot).srv.Stats()
		attached += st.Hosts
		if st.Streams != 0 || st.PendingDials != 0 {
			w.tr.violated("I8 nothing left", "%s counts %d streams and %d pending dials when all have ended", slot, st.Streams, st.PendingDials)
		}
	}
	want := 0
	for _, h := range w.schedule.Hosts {
		if h.kind != agentOfOld {
			want++
		}
	}
	if attached != want {
		w.tr.violated("I8 nothing left", "the nodes count %d hosts, want %d", attached, want)
	}
}

// finalAsks is a GET, and everything else too if all is wanted.
func (w *World) finalAsks(h Host, slot string, all bool) []ask {
	if h.kind == agentOfOld {
		return nil
	}
	kinds := []requestKind{get}
	if all {
		kinds = append(kinds, post, webSocket)
	}
	if all && h.kind != hostV2 {
		kinds = append(kinds, byConnect, byDial)
	}
	var list []ask
	for _, k := range kinds {
		w.finalIDs++
		a := ask{ID: fmt.Sprintf("z%d", w.finalIDs), Kind: k, Host: h.Name, Slot: slot, Size: 100, final: true}
		if k != get {
			a.Body, a.Chunks = 300, 3
		}
		list = append(list, a)
	}
	return list
}

// heal ends all faults: one process for each host and node, and a network and a
// Store that work.
func (w *World) heal() {
	w.network.heal()
	w.ledger.jumped.Store(0)
	w.mu.Lock()
	clear(w.slow)
	w.mu.Unlock()
	for _, n := range w.nodes() {
		n.seam.faulty.Clear()
		n.goOn()
	}
	for _, slot := range w.schedule.slots() {
		if !w.takes(slot) {
			w.restartNode(slot, "")
		}
		w.endTwins(slot)
	}
	for _, h := range w.schedule.Hosts {
		running := w.running(h.Name)
		for i, p := range running {
			p.goOn()
			if i > 0 {
				p.crash(false)
			}
		}
		if len(running) == 0 {
			w.restartHost(h.Name)
		}
	}
	w.causes.endAll()
}

// end closes everything. A run that failed may have faults in force.
func (w *World) end() {
	w.ending.Store(true)
	w.network.heal()
	nodes := w.nodes()
	w.mu.Lock()
	var hosts []*hostProc
	for _, list := range w.hosts {
		hosts = append(hosts, list...)
	}
	w.mu.Unlock()
	for _, n := range nodes {
		n.seam.faulty.Clear()
		n.goOn()
	}
	for _, h := range hosts {
		h.goOn()
		h.cancel()
	}
	for _, h := range hosts {
		<-h.done
	}
	for _, n := range nodes {
		if n.http != nil {
			n.srv.Close()
			n.http.Close()
		}
	}
	w.clients.kill()
	w.network.cut(linkID{"*", "*"}, "")
	for _, f := range w.closers {
		f()
	}
	w.asking.Wait()
	w.tasks.Wait()
	time.Sleep(time.Second) // net/http waits for half of one before it closes
}
