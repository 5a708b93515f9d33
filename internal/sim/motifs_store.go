package sim

import (
	"time"

	"github.com/dialback/dialback/store/storetest"
)

// The motifs about a Store that loses what was written last.

// lostRenewals: a host has moved, its claim has been confirmed, and the Store
// loses both, but not the lease of the node: it has an earlier renewal of that.
// Nobody asks for the host until the node must have heard of it.
func (g *generator) lostRenewals(at time.Duration) {
	h := g.host()
	_, b := g.twoSlots()
	g.move(at, h, b)
	g.step(at, func(w *World) { w.cutLink(linkID{h, "*"}, kindControl) }, "cut the control socket of %s", h)
	d := g.within(6*time.Second, 7*time.Second) // more than NodeBeat, and less than a lease without its last renewal
	at += d
	g.step(at, func(w *World) { w.storeLoses(d, false) }, "the Store loses what was written in the last %v", d)
	for range 1 + g.intn(3) {
		g.ask(at+g.within(7*time.Second, 20*time.Second), g.anything(h, g.slot()))
	}
}

// forgottenTwin: a second process has a node's ID, and the Store loses that
// before the first one has heard of it, which is without the Store meanwhile and
// comes back before, or after, the second one has registered again.
func (g *generator) forgottenTwin(at time.Duration) {
	slot := g.slot()
	g.step(at, func(w *World) { w.storeFails(slot, "*", storetest.Fault{Err: errStoreDown}) }, "the Store fails for %s", slot)
	at += 100 * time.Millisecond
	g.step(at, func(w *World) { w.twinNode(slot) }, "a second process of %s takes its address", slot)
	at += g.within(time.Second, 4*time.Second)
	g.step(at, func(w *World) { w.storeLoses(0, true) }, "the Store loses everything")
	at += g.within(0, 7*time.Second)
	g.step(at, func(w *World) { w.storeWorks() }, "the Store works")
	for range 1 + g.intn(3) {
		g.ask(at+g.within(0, 10*time.Second), g.anything(g.host(), slot))
	}
	g.step(at+g.within(6*time.Second, 20*time.Second), func(w *World) { w.endTwins(slot) }, "the first process of %s ends", slot)
}
