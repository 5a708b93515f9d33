//go:build linux

package chaos

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dialback/dialback/internal/proctest"
)

// fault is one fault that was made, and what it has caused.
type fault struct {
	// Set by its kind.
	kind   *kind
	detail string
	hosts  []string // those that it is about; nil for all

	begun, ended, calm time.Time
	back               time.Duration // until every host was reached again

	// Filled in by the ledger.
	failures map[string]int // by reason
	failed   []outcome
	outage   time.Duration
}

func (f *fault) String() string { return f.kind.name + " (" + f.detail + ")" }

// tail is how much later than the calm a stream may notice that it is over.
const tail = time.Second

// touches reports whether an outcome is of the time of the fault.
func (f *fault) touches(o outcome) bool {
	calm := f.calm
	if calm.IsZero() {
		calm = time.Now()
	}
	return o.ended.After(f.begun) && o.begun.Before(calm) && o.ended.Before(calm.Add(tail).Add(f.grace(o)))
}

// grace is how much later a call may end than its fault.
func (f *fault) grace(o outcome) time.Duration {
	switch {
	case o.kind == kindSlow:
		return slowSize / slowPart * slowPace // it reads what was buffered on the way
	case isKept(o.kind):
		return 0
	}
	return dialTimeout
}

// explains reports whether the fault excuses a failure.
func (f *fault) explains(o outcome) bool {
	if f.hosts != nil && !slices.Contains(f.hosts, o.host) {
		return false
	}
	return slices.ContainsFunc(f.kind.reasons, func(r string) bool {
		return regexp.MustCompile("^(" + r + ")$").MatchString(o.reason)
	})
}

// dialTimeout is the longest documented bound of a request that is not answered
// yet: that of a dial with all its issues (PROTOCOL.md, 14). An answer that
// never begins has 65 s, but here every service answers.
const dialTimeout = 10 * time.Second

// lateness is by how much a failure took longer than it may. During a fault that
// makes something silent, and that only its end can tell from something slow,
// the time counts from that end.
func (f *fault) lateness(o outcome) time.Duration {
	if isKept(o.kind) {
		return 0
	}
	from := o.begun
	if f.kind.silent && f.ended.After(from) {
		from = f.ended
	}
	return o.ended.Sub(from) - dialTimeout - busy
}

// kind is one kind of fault.
type kind struct {
	name    string
	reasons []string      // for which something may fail meanwhile, as regular expressions
	back    time.Duration // within which every host is to be reached after its end
	why     string        // of back
	silent  bool          // see lateness
	settle  time.Duration // how long after its end it may still show, although every host was reached
	run     func(w *world, f *fault, rng *rand.Rand)
}

// Reasons that go together.
var (
	// The node of the client, or that of the host, is gone with its connections.
	lostNode = []string{"connection (lost|refused)", "answer broken off", "balancer's 50[23]", "502 (stream_closed|refused)",
		"503 (host_offline|host_gone|host_replaced|node_unreachable|draining)", "close (1011|1012|1013|4410|4412)"}
	// A host, or its network, is gone.
	lostHost = []string{"connection lost", "answer broken off", "502 (stream_closed|refused|service_down)",
		"503 (host_offline|host_gone|host_replaced)", "close (1011|1012|1013|4410|4412)"}
	// Somebody is silent, and waits for nothing but a timer can help.
	silent = []string{"504 no_dial_back", "close 4411", "balancer's 504"}
	// The Store is gone.
	lostStore = []string{"503 (store_unavailable|host_offline|host_gone|node_unreachable)", "close 1013"}
)

// beat is how soon a node learns, by its next beat, that the Store has lost its
// rows without a sign, as the master that takes over may have (5 s), and has
// written all of them again.
const beat = 7 * time.Second

var kinds = []*kind{
	{name: "kill -9 of a node", reasons: lostNode, back: 10 * time.Second, why: "backoff of the hosts, 5 s at most, twice", run: killNode},
	{name: "SIGSTOP of a node", reasons: slices.Concat(lostNode, silent), silent: true, back: 20 * time.Second,
		why: "hosts leave a silent node after 12 s here, and come back within 5 s", run: stopNode},
	{name: "drain and restart of a node", reasons: []string{"close 1012", "connection (lost|refused)", "answer broken off", "503 draining"},
		back: 10 * time.Second, why: "backoff of the hosts, 5 s at most, twice", run: drainNode},
	{name: "nodes cannot reach one", reasons: []string{"503 (node_unreachable|host_gone|host_offline)", "502 (refused|stream_closed)", "close (1013|4410|4412)", "504 no_dial_back", "close 4411"}, silent: true,
		back: 10 * time.Second, why: "calls go on at once", run: partNode},
	{name: "freeze of what is kept between nodes", reasons: []string{"503 (node_unreachable|host_gone|host_offline)", "502 (refused|stream_closed)", "answer broken off", "connection lost",
		"close (1011|1013|4410|4412)", "504 no_dial_back", "close 4411"}, silent: true, back: 10 * time.Second, why: "calls go on at once", run: freezeNode},
	{name: "freeze of a host's connections", reasons: slices.Concat(lostHost, silent), silent: true, back: 10 * time.Second,
		why: "backoff of the host, 5 s at most, twice", run: freezeHost},
	{name: "cut of a host's connections", reasons: lostHost, back: 10 * time.Second, why: "backoff of the host, 5 s at most, twice", run: cutHost},
	{name: "a second process takes over a frozen host", reasons: slices.Concat(lostHost, silent), silent: true, back: 10 * time.Second,
		why: "backoff of the host, 5 s at most, twice", run: replaceHost},
	{name: "kill -9 of dialback host", reasons: lostHost, back: 10 * time.Second, why: "it is started again at once", run: killHost},
	{name: "Redis restarts empty", reasons: lostStore, back: 10 * time.Second, why: "all is well within 10 s of its return (README)", settle: beat, run: emptyRedis},
	{name: "Redis fails over", reasons: lostStore, back: 10 * time.Second, why: "all is well within 10 s of its return (README)", settle: beat, run: failOver},
	{name: "SIGSTOP of Redis", reasons: lostStore, back: 10 * time.Second, why: "all is well within 10 s of its return (README)", settle: beat, run: stopRedis},
}

// between is a random time.
func between(rng *rand.Rand, from, to time.Duration) time.Duration {
	return (from + time.Duration(rng.Int64N(int64(to-from)))).Round(10 * time.Millisecond)
}

func (w *world) anyNode(rng *rand.Rand) *node { return w.nodes[rng.IntN(len(w.nodes))] }

// anyHost is one in the test's process.
func (w *world) anyHost(rng *rand.Rand) *member {
	for {
		if m := w.members[rng.IntN(len(w.members))]; !m.proc {
			return m
		}
	}
}

func killNode(w *world, f *fault, rng *rand.Rand) {
	n, d := w.anyNode(rng), between(rng, 100*time.Millisecond, 5*time.Second)
	f.detail = fmt.Sprintf("%s, for %v", n.ID, d)
	n.P.Kill()
	time.Sleep(d)
	w.restart(n)
}

// stopNode stops a node, sometimes for longer than its lease of 15 s.
func stopNode(w *world, f *fault, rng *rand.Rand) {
	n, d := w.anyNode(rng), between(rng, 500*time.Millisecond, 8*time.Second)
	if !w.short && rng.IntN(3) == 0 {
		d = between(rng, 16*time.Second, 20*time.Second)
	}
	f.detail = fmt.Sprintf("%s, for %v", n.ID, d)
	n.Stop()
	time.Sleep(d)
	n.Resume()
}

func drainNode(w *world, f *fault, rng *rand.Rand) {
	n := w.anyNode(rng)
	f.detail = n.ID
	n.P.Terminate()
	w.restart(n)
}

func partNode(w *world, f *fault, rng *rand.Rand) {
	n, d := w.anyNode(rng), between(rng, time.Second, 6*time.Second)
	f.detail = fmt.Sprintf("%s, for %v", n.ID, d)
	n.calls.SetStalled(true)
	time.Sleep(d)
	n.calls.SetStalled(false)
}

// freezeNode makes a network forget the connections of other nodes to one. What
// passes from node to node on them, streams too, is silent until they are cut.
func freezeNode(w *world, f *fault, rng *rand.Rand) {
	n, d := w.anyNode(rng), between(rng, time.Second, 6*time.Second)
	kept, _, cut := n.calls.Freeze()
	time.Sleep(d)
	cut()
	f.detail = fmt.Sprintf("%d to %s, for %v", kept, n.ID, d)
}

// freezeHost makes a network forget a host's connections: nothing passes any
// more, and nobody is told, until they are cut.
func freezeHost(w *world, f *fault, rng *rand.Rand) {
	m, d := w.anyHost(rng), between(rng, time.Second, 18*time.Second)
	f.hosts = []string{m.id}
	_, _, cut := m.now.gate.Freeze()
	time.Sleep(d)
	cut()
	f.detail = fmt.Sprintf("%v, for %v", m, d)
}

func cutHost(w *world, f *fault, rng *rand.Rand) {
	m := w.members[rng.IntN(len(w.members))]
	f.hosts = []string{m.id}
	f.detail = m.String()
	m.now.gate.Cut()
}

// replaceHost is report A: a host's connections freeze, another process of it
// takes its place, and then the older one's connections come to life again.
func replaceHost(w *world, f *fault, rng *rand.Rand) {
	m, d := w.anyHost(rng), between(rng, 500*time.Millisecond, 5*time.Second)
	f.hosts = []string{m.id}
	f.detail = fmt.Sprintf("%v, frozen for %v more", m, d)
	old := m.now
	_, thaw, _ := old.gate.Freeze()
	time.Sleep(between(rng, 0, 2*time.Second))
	m.start()
	w.awaitConfirmed(m, m.instances)
	time.Sleep(d)
	thaw()
	time.Sleep(500 * time.Millisecond)
	old.stop()
	f.detail = fmt.Sprintf("%v, frozen for %v more", m, d)
}

func killHost(w *world, f *fault, rng *rand.Rand) {
	i := slices.IndexFunc(w.members, func(m *member) bool { return m.proc })
	m, d := w.members[i], between(rng, 0, 2*time.Second)
	f.hosts = []string{m.id}
	f.detail = fmt.Sprintf("%v, for %v", m, d)
	m.now.stop()
	time.Sleep(d)
	m.start()
}

func emptyRedis(w *world, f *fault, rng *rand.Rand) {
	d := between(rng, 0, 4*time.Second)
	f.detail = fmt.Sprintf("for %v", d)
	master, replica := w.redis.Current(w.t)
	master.Stop()
	replica.Stop()
	time.Sleep(d)
	master.Restart(w.t)
	replica.Restart(w.t, master.ReplicaOf()...)
	w.awaitMaster()
}

// awaitMaster waits until whom the Sentinel calls the master is one, and the
// Sentinel is content with it: it may be about to promote the other one.
func (w *world) awaitMaster() {
	w.t.Helper()
	sentinel := w.client(w.redis.Sentinel)
	proctest.Within(w.t, proctest.Patience, "Redis has a master", func() bool {
		state, err := sentinel.Do(w.t.Context(), "SENTINEL", "MASTER", "dialback").Result()
		if err != nil || !content.MatchString(fmt.Sprint(state)) {
			return false
		}
		master, _ := w.redis.Current(w.t)
		info, err := w.client(master).Info(w.t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "role:master")
	})
}

// content is in the state of a master of which its Sentinel has nothing else to
// say.
var content = regexp.MustCompile(`\bflags[: ]master[ \]]`)

func failOver(w *world, f *fault, rng *rand.Rand) {
	w.awaitReplica()
	f.begun = time.Now()
	master, replica := w.redis.Current(w.t)
	master.Stop()
	const patient = 15 * time.Second // it may take its time after an attempt that failed, or a stall
	asked := false
	proctest.Within(w.t, proctest.Patience, "the Sentinel promotes the replica", func() bool {
		if !asked && time.Since(f.begun) > patient {
			asked = true
			_ = w.client(w.redis.Sentinel).Do(w.t.Context(), "SENTINEL", "FAILOVER", "dialback").Err() // one may be under way
		}
		now, _ := w.redis.Current(w.t)
		return now == replica
	})
	w.awaitMaster()
	f.detail = fmt.Sprintf("within %v", time.Since(f.begun).Round(10*time.Millisecond))
	f.ended = time.Now()
	master.Restart(w.t, replica.ReplicaOf()...)
}

// stopRedis stops the master: for a hiccup, or for long enough that the Sentinel
// promotes the replica, and the older master goes on beside it.
func stopRedis(w *world, f *fault, rng *rand.Rand) {
	w.awaitReplica()
	f.begun = time.Now()
	d := between(rng, 100*time.Millisecond, downAfter/2)
	if rng.IntN(2) == 0 {
		d = between(rng, 2*downAfter, 4*downAfter)
	}
	f.detail = fmt.Sprintf("for %v", d)
	master, _ := w.redis.Current(w.t)
	master.Freeze(w.t)
	time.Sleep(d)
	master.Thaw(w.t)
	w.awaitMaster()
}

// make makes a fault and waits for calm.
func (w *world) make(k *kind, rng *rand.Rand) *fault {
	w.t.Helper()
	f := &fault{kind: k, begun: time.Now(), failures: make(map[string]int)}
	k.run(w, f, rng)
	if f.ended.IsZero() {
		f.ended = time.Now()
	}
	w.awaitCalm(f)
	w.t.Logf("%s %v: %v, and %v until all hosts were reached", f.begun.Format("15:04:05.000"), f, f.ended.Sub(f.begun).Round(time.Millisecond), f.back.Round(time.Millisecond))
	return f
}
