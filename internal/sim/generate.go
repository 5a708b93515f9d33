package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dialback/dialback/store/storetest"
)

// Generate makes the schedule of a seed: a few actors, and 5 to 40 steps within
// a minute or two. A part of the faults comes by chance, one at a time; a part
// comes in combinations that only together are dangerous (see motifs).
func Generate(seed uint64) *Schedule {
	g := &generator{random: newRandom(seed, "schedule"), s: &Schedule{Seed: seed, homes: make(map[string]int), delays: make(map[string]time.Duration)}}
	g.actors()
	const horizon = 30 * time.Second
	for range 1 + g.intn(4) {
		g.volley(g.within(0, horizon))
	}
	for range g.intn(4) {
		at := g.within(0, horizon)
		end := at + g.lasting()
		g.fault(at, end)
		for range g.intn(4) { // while it lasts, and just after
			g.volley(at + g.within(0, min(end-at, 10*time.Second)+time.Second))
		}
	}
	for range 1 + g.intn(2) {
		g.motif(g.within(time.Second, horizon))
	}
	slices.SortStableFunc(g.s.Steps, func(a, b Step) int { return int(a.At - b.At) })
	return g.s
}

// generator makes one schedule.
type generator struct {
	*random
	s    *Schedule
	asks int
}

// actors chooses nodes, hosts and delays.
func (g *generator) actors() {
	s := g.s
	s.Nodes = pick(g.random, 1, 2, 2, 3, 3)
	s.node = g.within(0, 3*time.Millisecond)
	add := func(kind hostKind) {
		name := fmt.Sprintf("h%d", len(s.Hosts))
		s.Hosts = append(s.Hosts, Host{name, kind})
		s.delays[name] = g.within(0, 40*time.Millisecond)
		s.homes[name] = g.intn(s.Nodes+1) - 1
	}
	add(pick(g.random, agentInProcess, agentForward))
	if g.chance(60) {
		add(hostV2)
	}
	if g.chance(30) {
		add(pick(g.random, agentInProcess, agentForward))
	}
	if g.chance(20) {
		add(agentOfOld)
	}
	s.delays[clientName] = g.within(0, 20*time.Millisecond)
}

// step adds one.
func (g *generator) step(at time.Duration, run func(*World), format string, args ...any) {
	g.s.Steps = append(g.s.Steps, Step{max(0, at), fmt.Sprintf(format, args...), run})
}

func (g *generator) slot() string { return fmt.Sprintf("n%d", g.intn(g.s.Nodes)) }

// host is one that is reached; v2 or agent only if asked for and there is one.
func (g *generator) host(want ...hostKind) string {
	var names []string
	for _, h := range g.s.Hosts {
		if h.kind != agentOfOld && (len(want) == 0 || slices.Contains(want, h.kind)) {
			names = append(names, h.Name)
		}
	}
	if len(names) == 0 {
		return g.host()
	}
	return pick(g.random, names...)
}

// ask adds one request or stream.
func (g *generator) ask(at time.Duration, a ask) {
	g.asks++
	a.ID = fmt.Sprintf("r%d", g.asks)
	if g.s.hostKind(a.Host) == hostV2 && (a.Kind == byConnect || a.Kind == byDial) {
		a.Kind = webSocket // v2 hosts have no byte streams
	}
	g.step(at, func(w *World) { w.asks(a) }, "ask %v", a)
}

// anything is some request or stream.
func (g *generator) anything(host, slot string) ask {
	a := ask{Host: host, Slot: slot}
	a.Kind = pick(g.random, get, get, post, post, post, byConnect, byDial, webSocket)
	switch a.Kind {
	case get, post:
		a.Size = pick(g.random, 0, 10, 3000, 80_000)
		a.Delay = pick(g.random, 0, 0, 20*time.Millisecond, 500*time.Millisecond, 2*time.Second)
		if g.chance(2) {
			a.Delay = headerTimeout + 5*time.Second
		}
		if g.chance(5) {
			a.Half = g.within(time.Millisecond, 2*time.Second)
		}
		if a.Kind == post {
			a.Body = pick(g.random, 0, 0, 50, 5000, 70_000, 400_000)
			if a.Body > 5000 && g.chance(30) {
				a.Read = pick(g.random, 500*time.Millisecond, 3*time.Second, 8*time.Second)
			}
			a.Key = g.chance(25)
		}
	default:
		a.Chunks = 1 + g.intn(8)
		a.Body = a.Chunks * pick(g.random, 1, 100, 20_000)
		a.Gap = pick(g.random, 0, 10*time.Millisecond, 700*time.Millisecond, 3*time.Second)
	}
	if g.chance(8) {
		a.Leave = g.within(time.Millisecond, 4*time.Second)
	}
	return a
}

// volley is a few requests to a host, close enough to share streams.
func (g *generator) volley(at time.Duration) {
	host, slot := g.host(), g.slot()
	for range 1 + g.intn(4) {
		g.ask(at, g.anything(host, slot))
		at += pick(g.random, 0, 5*time.Millisecond, 100*time.Millisecond, 300*time.Millisecond, 1200*time.Millisecond)
	}
}

// lasting is how long a fault lasts: mostly seconds, now and then longer than
// every timeout.
func (g *generator) lasting() time.Duration {
	if g.chance(12) {
		return g.within(20*time.Second, 100*time.Second)
	}
	return g.within(100*time.Millisecond, 8*time.Second)
}

// link is a way from a host, the clients or a node to a node, or to all.
func (g *generator) link() linkID {
	to := pick(g.random, g.slot(), "*")
	from := g.host()
	switch g.intn(8) {
	case 0:
		from = clientName
	case 1, 2:
		from = g.slot()
	}
	if from == clientName || g.s.isSlot(from) {
		to = g.slot()
	}
	if from == to { // one node alone
		from = clientName
	}
	return linkID{from, to}
}

func (id linkID) String() string { return id.from + "→" + id.to }

var directionNames = map[direction]string{inbound: "inbound", outbound: "outbound", bothWays: "both ways"}

// fault adds one fault and its end.
func (g *generator) fault(at, end time.Duration) {
	switch g.intn(14) {
	case 0, 1:
		id, d := g.link(), pick(g.random, inbound, outbound, bothWays)
		g.step(at, func(w *World) { w.freezeLink(id, d) }, "freeze %v %s", id, directionNames[d])
		g.step(end, func(w *World) { w.thawLink(id) }, "thaw %v", id)
	case 2:
		id, b := g.link(), pick(g.random, refused, swallowed)
		g.step(at, func(w *World) { w.blockLink(id, b) }, "new connections %v are %s", id, map[blockKind]string{refused: "refused", swallowed: "swallowed"}[b])
		g.step(end, func(w *World) { w.unblockLink(id) }, "new connections %v are taken", id)
	case 3:
		id, d := g.link(), g.within(100*time.Millisecond, 3*time.Second)
		g.step(at, func(w *World) { w.delayLink(id, d) }, "%v is %v slow", id, d)
		g.step(end, func(w *World) { w.undelayLink(id) }, "%v is as fast as before", id)
	case 4:
		id, kind := g.link(), pick(g.random, "", kindControl, kindData)
		g.step(at, func(w *World) { w.cutLink(id, kind) }, "cut %v %s", id, kind)
	case 5:
		id, kind, d := g.link(), pick(g.random, kindControl, kindData), pick(g.random, inbound, outbound)
		g.step(at, func(w *World) { w.halfCloseLink(id, kind, d) }, "half close %v %s %s", id, kind, directionNames[d])
	case 6, 7:
		g.nodeFault(at, end)
	case 8:
		h := g.host()
		g.step(at, func(w *World) { w.stopHost(h) }, "stop %s", h)
		g.step(end, func(w *World) { w.goOnHost(h) }, "%s goes on", h)
	case 9:
		h, vanish := g.host(), g.chance(50)
		g.step(at, func(w *World) { w.crashHost(h, vanish) }, "crash %s (vanish: %v)", h, vanish)
		g.step(end, func(w *World) { w.restartHost(h) }, "restart %s", h)
		g.step(end+g.within(0, 5*time.Second), func(w *World) { w.burnDead(h) }, "what %s had open breaks", h)
	case 10:
		h, vanish := g.host(), g.chance(30)
		g.step(at, func(w *World) { w.restartHost(h) }, "a double of %s starts", h)
		g.step(end, func(w *World) { w.endOldest(h, vanish) }, "the older process of %s ends (vanish: %v)", h, vanish)
	case 11, 12:
		g.storeFault(at, end)
	case 13:
		h, slot := g.host(), g.slot()
		g.step(at, func(w *World) { w.revoke(slot, h) }, "revoke %s at %s", h, slot)
	}
}

func (g *generator) nodeFault(at, end time.Duration) {
	slot := g.slot()
	switch g.intn(5) {
	case 0, 1:
		late := g.chance(50)
		g.step(at, func(w *World) { w.stopNode(slot, late) }, "stop %s (calls of the Store are made late: %v)", slot, late)
		g.step(end, func(w *World) { w.goOnNode(slot) }, "%s goes on", slot)
	case 2:
		vanish := g.chance(40)
		id := pick(g.random, "", slot+"x")
		g.step(at, func(w *World) { w.crashNode(slot, vanish) }, "crash %s (vanish: %v)", slot, vanish)
		g.step(end, func(w *World) { w.restartNode(slot, id) }, "restart %s as %s", slot, pickFirst(id, slot))
	case 3:
		g.step(at, func(w *World) { w.twinNode(slot) }, "a second process of %s takes its address", slot)
		g.step(end, func(w *World) { w.endTwins(slot) }, "the first process of %s ends", slot)
	case 4:
		g.step(at, func(w *World) { w.drainNode(slot) }, "drain %s", slot)
		g.step(at+25*time.Second, func(w *World) { w.restartNode(slot, "") }, "restart %s", slot)
	}
}

func pickFirst(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

var errStoreDown = errors.New("sim: the Store is down")

func (g *generator) storeFault(at, end time.Duration) {
	slot := pick(g.random, "*", g.slot())
	switch g.intn(6) {
	case 0, 1, 2:
		method := pick(g.random, "*", "*", "Claim", "Current", "Ping", "Retire", "Detach", "KeepNode", "Nodes")
		f := pick(g.random,
			storetest.Fault{Err: errStoreDown}, storetest.Fault{Hang: true}, storetest.Fault{Err: errStoreDown, After: true},
			storetest.Fault{Err: errStoreDown, After: true, Times: 1}, storetest.Fault{Delay: g.within(50*time.Millisecond, 990*time.Millisecond)})
		g.step(at, func(w *World) { w.storeFails(slot, method, f) }, "the Store fails for %s: %s %+v", slot, method, f)
		g.step(end, func(w *World) { w.storeWorks() }, "the Store works")
	case 3:
		d := g.within(100*time.Millisecond, 8*time.Second)
		g.step(at, func(w *World) { w.storeLoses(d, false) }, "the Store loses what was written in the last %v", d)
	case 4:
		g.step(at, func(w *World) { w.storeLoses(0, true) }, "the Store loses everything")
	case 5:
		d := pick(g.random, -time.Hour, time.Hour, -time.Second)
		g.step(at, func(w *World) { w.clockJumps(d) }, "the Store's clock jumps by %v", d)
	}
}
