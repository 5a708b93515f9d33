package sim

import (
	"fmt"
	"time"

	"github.com/dialback/dialback/store/storetest"
)

// The motifs are combinations of faults and requests, each of which is harmless
// alone: the situations for which the guards of ARCHITECTURE.md are there. Their
// times and targets are drawn like everything else.

// motif adds one.
func (g *generator) motif(at time.Duration) {
	all := []func(time.Duration){
		g.dialBackAfterMove, g.lateClaim, g.workLost, g.pingAndGone, g.lateEnd, g.unheardReplacement, g.comeBackHere, g.frozenHost, g.drainedHost, g.lateAnswer, g.keptAndMoved,
		g.lostRenewals, g.forgottenTwin, g.unreadUpload,
	}
	all[g.intn(len(all))](at)
}

// twoSlots are two different slots, if there are two.
func (g *generator) twoSlots() (a, b int) {
	a = g.intn(g.s.Nodes)
	return a, (a + 1 + g.intn(max(1, g.s.Nodes-1))) % g.s.Nodes
}

func slotName(i int) string { return fmt.Sprintf("n%d", i) }

// isolate keeps a node from all others until end.
func (g *generator) isolate(at, end time.Duration, a int) {
	for b := range g.s.Nodes {
		if b == a {
			continue
		}
		x, y := slotName(a), slotName(b)
		g.step(at, func(w *World) { w.part(x, y) }, "part %s from %s", x, y)
		g.step(end, func(w *World) { w.join(x, y) }, "join %s and %s", x, y)
	}
}

func (g *generator) move(at time.Duration, h string, slot int) {
	g.step(at, func(w *World) { w.setHome(h, slot) }, "%s is led to %s from now on", h, slotName(slot))
}

// dialBackAfterMove: a host that is slow to dial back has a double on another
// node before it does, and the node that waits cannot hear of it.
func (g *generator) dialBackAfterMove(at time.Duration) {
	h := g.host(hostV2)
	a, b := g.twoSlots()
	slow := g.within(1200*time.Millisecond, 3*time.Second)
	g.move(at, h, a)
	g.step(at, func(w *World) { w.cutLink(linkID{h, "*"}, kindControl) }, "cut the control socket of %s", h)
	at += 2500 * time.Millisecond
	g.step(at, func(w *World) { w.setSlow(h, slow) }, "%s takes %v to dial back", h, slow)
	g.ask(at+10*time.Millisecond, ask{Kind: pick(g.random, get, post), Host: h, Slot: slotName(a)})
	g.isolate(at+400*time.Millisecond, at+slow+time.Second, a)
	g.move(at+450*time.Millisecond, h, b)
	g.step(at+500*time.Millisecond, func(w *World) { w.restartHost(h) }, "a double of %s starts", h)
	g.move(at+slow-100*time.Millisecond, h, a)
	g.step(at+slow+5*time.Second, func(w *World) { w.setSlow(h, 0) }, "%s is quick again", h)
	g.step(at+slow+6*time.Second, func(w *World) { w.endOldest(h, false) }, "the older process of %s ends", h)
	g.move(at+slow+7*time.Second, h, b)
}

// lateClaim: an agent has given a socket up whose claim is under way, and has
// another by the time that the Store gets it.
func (g *generator) lateClaim(at time.Duration) {
	h := g.host(agentInProcess, agentForward)
	a, b := g.twoSlots()
	slot := slotName(a)
	g.move(at, h, a)
	delay := g.within(850*time.Millisecond, 980*time.Millisecond)
	g.step(at, func(w *World) { w.storeFails(slot, "Claim", storetest.Fault{Delay: delay, Times: 1}) }, "the next claim at %s takes %v", slot, delay)
	g.step(at, func(w *World) { w.cutLink(linkID{h, "*"}, kindControl) }, "cut the control socket of %s", h)
	at += 500 * time.Millisecond
	g.move(at, h, b)
	g.step(at+time.Millisecond, func(w *World) { w.cutLink(linkID{h, "*"}, kindControl) }, "cut the control socket of %s", h)
	g.step(at+3*time.Second, func(w *World) { w.storeWorks() }, "the Store works")
	g.ask(at+g.within(0, 3*time.Second), g.anything(h, g.slot()))
}

// workLost: the way of an answer breaks while the service works, on a stream
// that had served before.
func (g *generator) workLost(at time.Duration) {
	h := g.host(agentInProcess, agentForward)
	slot := g.slot()
	g.ask(at, ask{Kind: get, Host: h, Slot: slot, Size: 10})
	at += pick(g.random, 150*time.Millisecond, 500*time.Millisecond, 2*time.Second)
	for range 1 + g.intn(3) {
		g.ask(at, ask{Kind: post, Host: h, Slot: slot, Size: 10, Key: g.chance(20), Body: pick(g.random, 0, 0, 0, 30), Delay: time.Second})
	}
	at += g.within(200*time.Millisecond, 800*time.Millisecond)
	if g.chance(70) {
		g.step(at, func(w *World) { w.cutLink(linkID{h, "*"}, kindData) }, "cut the data sockets of %s", h)
		return
	}
	g.step(at, func(w *World) { w.crashHost(h, false) }, "crash %s", h)
	g.step(at+100*time.Millisecond, func(w *World) { w.restartHost(h) }, "restart %s", h)
}

// pingAndGone: control sockets end while their pings are on the way to the Store.
func (g *generator) pingAndGone(at time.Duration) {
	h := g.host()
	delay := g.within(100*time.Millisecond, 450*time.Millisecond)
	g.step(at, func(w *World) { w.storeFails("*", "Ping", storetest.Fault{Delay: delay}) }, "each ping takes %v to the Store", delay)
	for range 2 + g.intn(3) {
		g.step(at, func(w *World) { w.cutLink(linkID{h, "*"}, kindControl) }, "cut the control socket of %s", h)
		at += g.within(350*time.Millisecond, 1200*time.Millisecond)
	}
	g.step(at, func(w *World) { w.storeWorks() }, "the Store works")
	g.ask(at+g.within(0, time.Second), g.anything(h, g.slot()))
}

// lateEnd: a host has vanished from one node and has come back on another; the
// first one has not heard of it when it sees the end of the older socket.
func (g *generator) lateEnd(at time.Duration) {
	h := g.host()
	a, b := g.twoSlots()
	g.move(at, h, a)
	g.step(at, func(w *World) { w.cutLink(linkID{h, "*"}, kindControl) }, "cut the control socket of %s", h)
	at += 3 * time.Second
	g.isolate(at, at+4*time.Second, a)
	g.step(at+100*time.Millisecond, func(w *World) { w.crashHost(h, true) }, "%s vanishes", h)
	g.move(at+150*time.Millisecond, h, b)
	g.step(at+200*time.Millisecond, func(w *World) { w.restartHost(h) }, "restart %s", h)
	g.step(at+g.within(2*time.Second, 3*time.Second), func(w *World) { w.burnDead(h) }, "what %s had open breaks", h)
	g.ask(at+g.within(3*time.Second, 20*time.Second), g.anything(h, g.slot()))
}

// unheardReplacement: a socket is replaced on another node, its own node does
// not hear of it, and the host goes on pinging.
func (g *generator) unheardReplacement(at time.Duration) {
	h := g.host()
	a, b := g.twoSlots()
	g.move(at, h, a)
	g.step(at, func(w *World) { w.cutLink(linkID{h, "*"}, kindControl) }, "cut the control socket of %s", h)
	at += 3 * time.Second
	g.isolate(at, at+4*time.Second, a)
	g.move(at+150*time.Millisecond, h, b)
	g.step(at+200*time.Millisecond, func(w *World) { w.restartHost(h) }, "a double of %s starts", h)
	for range 1 + g.intn(3) {
		g.ask(at+g.within(0, 50*time.Second), g.anything(h, g.slot()))
	}
	vanish := g.chance(50)
	g.step(at+50*time.Second, func(w *World) { w.endOldest(h, vanish) }, "the older process of %s ends (vanish: %v)", h, vanish)
}

// comeBackHere: a host has vanished and comes back to the same node; long after
// that the end of its older socket is seen, and requests come.
func (g *generator) comeBackHere(at time.Duration) {
	h := g.host()
	a := g.intn(g.s.Nodes)
	g.move(at, h, a)
	g.step(at, func(w *World) { w.cutLink(linkID{h, "*"}, kindControl) }, "cut the control socket of %s", h)
	at += 3 * time.Second
	g.step(at, func(w *World) { w.crashHost(h, true) }, "%s vanishes", h)
	g.step(at+100*time.Millisecond, func(w *World) { w.restartHost(h) }, "restart %s", h)
	g.step(at+g.within(time.Second, 5*time.Second), func(w *World) { w.burnDead(h) }, "what %s had open breaks", h)
	g.ask(at+g.within(0, time.Second), g.anything(h, g.slot()))
	g.ask(at+g.within(15*time.Second, 25*time.Second), g.anything(h, g.slot()))
}

// frozenHost: nothing of a host gets through while it is asked for.
func (g *generator) frozenHost(at time.Duration) {
	h := g.host(agentInProcess, agentForward)
	id, d := linkID{h, "*"}, pick(g.random, inbound, outbound, bothWays)
	g.step(at, func(w *World) { w.freezeLink(id, d) }, "freeze %v %s", id, directionNames[d])
	for range 1 + g.intn(3) {
		g.ask(at+g.within(0, 3*time.Second), g.anything(h, g.slot()))
	}
	g.step(at+g.within(5*time.Second, 12*time.Second), func(w *World) { w.thawLink(id) }, "thaw %v", id)
}

// drainedHost: a node with hosts drains while it and they are asked for.
func (g *generator) drainedHost(at time.Duration) {
	h := g.host()
	a := g.intn(g.s.Nodes)
	slot := slotName(a)
	g.move(at, h, a)
	g.step(at, func(w *World) { w.cutLink(linkID{h, "*"}, kindControl) }, "cut the control socket of %s", h)
	at += 2 * time.Second
	g.step(at, func(w *World) { w.drainNode(slot) }, "drain %s", slot)
	for range 2 + g.intn(4) {
		g.ask(at+g.within(0, 15*time.Second), g.anything(h, g.slot()))
	}
	g.step(at+25*time.Second, func(w *World) { w.restartNode(slot, "") }, "restart %s", slot)
}

// lateAnswer: a host is in use, so that there are data sockets in advance; then
// what it says on the way by one node is held up, while its control socket and
// new dial-backs go by another.
func (g *generator) lateAnswer(at time.Duration) {
	h := g.host(agentInProcess, agentForward)
	a, b := g.twoSlots()
	slot := slotName(g.intn(g.s.Nodes))
	g.move(at, h, b)
	g.step(at, func(w *World) { w.cutLink(linkID{h, "*"}, kindControl) }, "cut the control socket of %s", h)
	at += 2 * time.Second
	g.move(at, h, a)
	for range 3 {
		at += 300 * time.Millisecond
		g.ask(at, ask{Kind: pick(g.random, byConnect, byDial), Host: h, Slot: slot, Body: 10, Chunks: 1})
	}
	at += time.Second
	g.move(at, h, b)
	id := linkID{h, slotName(a)}
	g.step(at, func(w *World) { w.freezeLink(id, outbound) }, "freeze %v outbound", id)
	for range 1 + g.intn(2) {
		g.ask(at+g.within(0, 500*time.Millisecond), ask{Kind: pick(g.random, byConnect, byConnect, byDial, webSocket), Host: h, Slot: slot, Body: 100, Chunks: 2, Gap: 10 * time.Millisecond})
	}
	g.step(at+g.within(3*time.Second, 8*time.Second), func(w *World) { w.thawLink(id) }, "thaw %v", id)
}

// keptAndMoved: a node keeps streams to a host that has a double elsewhere by
// now, and has not heard of it; then it is asked for the host again.
func (g *generator) keptAndMoved(at time.Duration) {
	h := g.host(agentInProcess, agentForward)
	a, b := g.twoSlots()
	slot := slotName(a)
	g.move(at, h, a)
	g.step(at, func(w *World) { w.cutLink(linkID{h, "*"}, kindControl) }, "cut the control socket of %s", h)
	at += 3 * time.Second
	for range 1 + g.intn(3) {
		g.ask(at, ask{Kind: pick(g.random, get, post), Host: h, Slot: slot, Size: 10, Delay: 20 * time.Millisecond})
	}
	at += time.Second
	g.isolate(at, at+6*time.Second, a)
	g.move(at+100*time.Millisecond, h, b)
	g.step(at+150*time.Millisecond, func(w *World) { w.restartHost(h) }, "a double of %s starts", h)
	at += 2 * time.Second
	for range 1 + g.intn(3) {
		at += g.within(0, 800*time.Millisecond)
		g.ask(at, ask{Kind: pick(g.random, get, post), Host: h, Slot: slot, Size: 10})
	}
	g.step(at+10*time.Second, func(w *World) { w.endOldest(h, false) }, "the older process of %s ends", h)
}

// unreadUpload: the control socket of a host is lost, or its node drains, while its
// service is slow to read what is uploaded.
func (g *generator) unreadUpload(at time.Duration) {
	h := g.host(agentInProcess, agentForward)
	a, b := g.twoSlots()
	slot := slotName(a)
	g.move(at, h, a)
	g.step(at, func(w *World) { w.cutLink(linkID{h, "*"}, kindControl) }, "cut the control socket of %s", h)
	at += 3 * time.Second
	g.ask(at, ask{Kind: post, Host: h, Slot: g.slot(), Size: 10, Body: 400_000, Read: g.within(time.Second, 9*time.Second)})
	at += g.within(200*time.Millisecond, time.Second)
	if g.chance(50) {
		g.move(at, h, b)
	}
	if g.chance(70) {
		g.step(at, func(w *World) { w.cutLink(linkID{h, "*"}, kindControl) }, "cut the control socket of %s", h)
		return
	}
	g.step(at, func(w *World) { w.drainNode(slot) }, "drain %s", slot)
	g.step(at+25*time.Second, func(w *World) { w.restartNode(slot, "") }, "restart %s", slot)
}
