package sim

import (
	"context"
	"time"

	"github.com/dialback/dialback/store/storetest"
)

// The faults, as steps of a schedule do them. Each tells causes what it is, for
// as long as it lasts.

func (w *World) stopNode(slot string, late bool) {
	if n := w.at(slot); n != nil {
		w.causes.begin(nodeFault, slot, "stopped")
		n.stop(late)
	}
}

func (w *World) goOnNode(slot string) {
	if n := w.at(slot); n != nil {
		n.goOn()
	}
	w.causes.end(nodeFault, slot, "stopped")
}

func (w *World) crashNode(slot string, vanish bool) {
	if n := w.at(slot); n != nil {
		w.causes.begin(nodeFault, slot, "down")
		n.crash(vanish)
	}
}

// restartNode starts another process in a slot, with the ID of the slot unless
// another is given.
func (w *World) restartNode(slot, id string) {
	if n := w.at(slot); n != nil {
		n.crash(false)
	}
	w.mu.Lock()
	w.leaving[slot] = false
	old := w.slots[slot]
	w.mu.Unlock()
	if old != nil {
		w.network.thawDropped(old.process)
		w.network.cutServed(old.process)
	}
	if id == "" {
		id = slot
	}
	w.startNode(slot, id)
	w.causes.end(nodeFault, slot, "down")
}

// twinNode starts a second process with the ID and at the address of a node
// whose first process goes on, as when a deployment overlaps.
func (w *World) twinNode(slot string) {
	n := w.at(slot)
	if n == nil {
		return
	}
	w.causes.begin(nodeFault, slot, "twin")
	n.listener.Close()
	w.startNode(slot, n.id)
}

// endTwins ends all processes of a slot but the newest.
func (w *World) endTwins(slot string) {
	newest := w.at(slot)
	for _, n := range w.nodes() {
		if n.name == slot && n != newest && !n.isDead() {
			n.crash(false)
		}
	}
	w.causes.end(nodeFault, slot, "twin")
}

// drainNode shuts a node down; a load balancer notices at once.
func (w *World) drainNode(slot string) {
	n := w.at(slot)
	if n == nil {
		return
	}
	w.causes.begin(nodeFault, slot, "down")
	w.mu.Lock()
	w.leaving[slot] = true
	w.mu.Unlock()
	w.tasks.Go(func() { n.shutdown(20 * time.Second) })
}

func (w *World) stopHost(host string) {
	w.causes.begin(hostFault, host, "stopped")
	for _, h := range w.running(host) {
		h.stop(false)
	}
}

func (w *World) goOnHost(host string) {
	for _, h := range w.running(host) {
		h.goOn()
	}
	w.causes.end(hostFault, host, "stopped")
}

func (w *World) crashHost(host string, vanish bool) {
	w.causes.begin(hostFault, host, "down")
	if !vanish {
		w.causes.broke(host)
	}
	for _, h := range w.running(host) {
		h.crash(vanish)
	}
}

// restartHost starts a process of a host beside those that there may be.
func (w *World) restartHost(host string) {
	w.startHost(host)
	w.causes.end(hostFault, host, "down")
}

// burnDead has the connections of a host's dead processes break: what had
// vanished is noticed.
func (w *World) burnDead(host string) {
	w.causes.touch(hostFault, host)
	w.mu.Lock()
	list := w.hosts[host]
	w.mu.Unlock()
	for _, h := range list {
		if h.isDead() {
			w.network.thawDropped(h.process)
		}
	}
}

// endOldest ends the process of a host that runs longest, if another one does.
func (w *World) endOldest(host string, vanish bool) {
	if list := w.running(host); len(list) > 1 {
		if vanish {
			w.causes.begin(hostFault, host, "vanished") // for as long as nobody notices
		} else {
			w.causes.touch(hostFault, host)
		}
		list[0].crash(vanish)
	}
}

func (w *World) setHome(host string, slot int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.homes[host] = slot
}

func (w *World) setSlow(host string, d time.Duration) {
	w.mu.Lock()
	w.slow[host] = d
	w.mu.Unlock()
	if d > 0 {
		w.causes.begin(hostFault, host, "slow")
	} else {
		w.causes.end(hostFault, host, "slow")
	}
}

// linkFault is what a fault of a link is to those who suffer.
func (w *World) linkFault(id linkID, how string) (kind faultKind, who, what string) {
	switch {
	case id.from == clientName:
		return clientFault, id.to, how + id.String()
	case w.schedule.isSlot(id.from):
		return partFault, "", how + id.String()
	}
	return hostFault, id.from, how + id.String()
}

func (w *World) freezeLink(id linkID, d direction) {
	w.causes.begin(w.linkFault(id, "frozen "))
	w.network.setFreeze(id, d)
}

func (w *World) thawLink(id linkID) {
	w.network.setFreeze(id, noDirection)
	w.causes.end(w.linkFault(id, "frozen "))
}

func (w *World) blockLink(id linkID, b blockKind) {
	w.causes.begin(w.linkFault(id, "blocked "))
	w.network.setBlock(id, b)
}

func (w *World) unblockLink(id linkID) {
	w.network.setBlock(id, noBlock)
	w.causes.end(w.linkFault(id, "blocked "))
}

func (w *World) delayLink(id linkID, d time.Duration) {
	w.causes.begin(w.linkFault(id, "delayed "))
	w.network.setDelay(id, d)
}

func (w *World) undelayLink(id linkID) {
	w.network.setDelay(id, w.schedule.delayOf(id))
	w.causes.end(w.linkFault(id, "delayed "))
}

// cutLink breaks connections. A host that loses its control socket alone has
// lost no stream.
func (w *World) cutLink(id linkID, kind string) {
	f, who, _ := w.linkFault(id, "")
	if f == hostFault && kind == kindControl {
		f = controlFault
	}
	w.causes.touch(f, who)
	if f == hostFault && id.to == "*" {
		w.causes.broke(id.from)
	}
	w.network.cut(id, kind)
}

func (w *World) halfCloseLink(id linkID, kind string, d direction) {
	f, who, _ := w.linkFault(id, "")
	if f == hostFault && kind == kindControl {
		f = controlFault
	}
	w.causes.touch(f, who)
	w.network.halfClose(id, kind, d)
}

// part keeps two nodes from each other; join ends that.
func (w *World) part(a, b string) {
	for _, id := range []linkID{{a, b}, {b, a}} {
		w.blockLink(id, swallowed)
		w.network.setFreeze(id, bothWays)
	}
}

func (w *World) join(a, b string) {
	for _, id := range []linkID{{a, b}, {b, a}} {
		w.network.setFreeze(id, noDirection)
		w.unblockLink(id)
	}
}

// storeFault sets a fault for the calls of a method; slot "*" is all nodes.
func (w *World) storeFails(slot, method string, f storetest.Fault) {
	w.causes.begin(storeFault, "", "")
	for _, s := range w.schedule.slots() {
		if n := w.at(s); n != nil && (slot == "*" || slot == s) {
			n.seam.faulty.Set(method, f)
		}
	}
}

func (w *World) storeWorks() {
	for _, n := range w.nodes() { // those with a twin too
		n.seam.faulty.Clear()
	}
	w.causes.end(storeFault, "", "")
}

func (w *World) storeLoses(d time.Duration, everything bool) {
	w.causes.touch(storeFault, "")
	w.ledger.lose(d, everything)
}

func (w *World) clockJumps(d time.Duration) { w.ledger.jumped.Add(int64(d)) }

func (w *World) revoke(slot, host string) {
	n := w.at(slot)
	if n == nil {
		return
	}
	w.causes.touch(hostFault, host)
	w.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		under := w.outcomes.under(host)
		err := n.srv.Revoke(ctx, host, "the schedule says so")
		at := w.tr.log("%s: revoke of %s: %v", n.label, host, err)
		for _, r := range under {
			r.revoked.CompareAndSwap(nil, &at)
		}
	})
}

func (w *World) asks(a ask) { w.asking.Go(func() { w.do(a) }) }
