package sim

import (
	"slices"
	"sync"
	"time"
)

// causes knows the faults, and judges whether what became of a request can be
// true. Its rules:
//
//   - I3, true: a failure has its cause: each code and each broken stream needs
//     a fault, or a change of what the Store names for the host, that explains it
//     (see explained), at most aftermath before the request began; a refusal needs
//     one on the wire.
//   - I3, quick: a failure comes within the bound of its code, unless the client,
//     its way or its node was itself held up.
//   - I3, prompt: what a service has got, and may not be sent again, ends within
//     promptly of the break of all data sockets of its host: no timer is waited
//     for when the cause has happened.
//   - I3, revoked: everything that was under way to a host when it was revoked ends
//     promptly.
//   - I5: the loss or replacement of a control socket explains no broken stream
//     and no broken exchange.
//   - Where there is no cause, a request goes well; and after all faults have
//     ended every host is reached from every node.
type causes struct {
	w *World

	// Guarded by mu.
	mu     sync.Mutex
	faults []*fault
}

type faultKind uint8

const (
	nodeFault    faultKind = iota // a node is stopped, down, draining
	storeFault                    // of any node's
	partFault                     // two nodes do not reach each other
	hostFault                     // a host's process or its network; who is the host
	controlFault                  // a host's control socket alone
	clientFault                   // the way of clients to a node; who is its slot
	faultKinds
)

type fault struct {
	kind     faultKind
	who      string
	what     string        // tells faults of one kind apart that overlap
	from, to time.Duration // to is negative while it lasts
}

// aftermath is how long after its end a fault may still show.
const aftermath = 10 * time.Second

func newCauses(w *World) *causes { return &causes{w: w} }

// begin notes a fault that lasts until end; what tells it from others of its
// kind.
func (c *causes) begin(kind faultKind, who, what string) {
	now := c.w.tr.now().t
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, &fault{kind, who, what, now, -1})
}

// end ends the faults that have begun with the same arguments; it is a fault of
// a moment as well.
func (c *causes) end(kind faultKind, who, what string) {
	now := c.w.tr.now().t
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.faults {
		if f.kind == kind && f.who == who && f.what == what && f.to < 0 {
			f.to = now
		}
	}
	c.faults = append(c.faults, &fault{kind, who, what, now, now})
}

// touch notes a fault of a moment.
func (c *causes) touch(kind faultKind, who string) {
	now := c.w.tr.now().t
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, &fault{kind, who, "", now, now})
}

func (c *causes) endAll() {
	now := c.w.tr.now().t
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.faults {
		if f.to < 0 {
			f.to = now
		}
	}
}

// around says which kinds of faults there were between two times that concern a
// request.
func (c *causes) around(r *request, from, to time.Duration) (is [faultKinds]bool) {
	slot := ""
	if r.node != nil {
		slot = r.node.name
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.faults {
		if f.from > to || f.to >= 0 && f.to < from {
			continue
		}
		switch f.kind {
		case hostFault, controlFault:
			if f.who != r.host {
				continue
			}
		case clientFault:
			if f.who != slot {
				continue
			}
		}
		is[f.kind] = true
	}
	return is
}

// promptly is what a client may wait for after the break of a data socket: news
// of it crosses a node at most, and there may be a close handshake.
const promptly = 2 * time.Second

// broke: all data sockets of the host break at this moment.
func (c *causes) broke(host string) {
	if c.w.network.held(host) {
		return // the break itself does not get through
	}
	at := c.w.tr.now()
	for _, r := range c.w.outcomes.working(host) {
		r.brokeAt.CompareAndSwap(nil, &at)
	}
}

// late reports whether a request has ended long after a moment that should have
// ended it.
func (c *causes) late(r *request, broke *stamp, at stamp) bool {
	if broke == nil || at.t-broke.t <= promptly+10*c.w.schedule.slowestDelay()+r.ask.Gap {
		return false
	}
	is := c.around(r, broke.t-aftermath, at.t)
	return !is[nodeFault] && !is[partFault] && !is[clientFault]
}

// failing reports whether a node or the Store was failing at some time between
// two, faults of a moment apart.
func (c *causes) failing(from, to time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.faults, func(f *fault) bool {
		return (f.kind == nodeFault || f.kind == storeFault) && f.from <= to && (f.to < 0 || f.to >= from && f.to > f.from)
	})
}

// leftBehind reports whether the Store names a socket of a node that has crashed:
// what a crash leaves behind is as good as nothing.
func (c *causes) leftBehind(host string) bool {
	sock := c.w.ledger.names(host)
	if sock == nil {
		return false
	}
	n := c.w.nodeNamed(sock.att.Incarnation)
	return n == nil || n.isDead()
}

// judge judges the end of a request.
func (c *causes) judge(r *request, code string, at stamp) {
	if code == clientLeft {
		return
	}
	began, ended := r.began.t, at.t
	is := c.around(r, began-aftermath, ended)
	if code == halfClosed {
		// A body that nobody has read yet hides its end from net/http.
		if late := ended - began - r.ask.Half; r.ask.Body == 0 && late > promptly+10*c.w.schedule.slowestDelay() && !is[nodeFault] && !is[clientFault] {
			c.w.tr.violated("I3 prompt", "%s (%s to %s) ended %v after its client had half closed", r.id, r.kind, r.host, late)
		}
		return
	}
	changed := c.w.ledger.changedWithin(r.host, began-aftermath, ended) || c.leftBehind(r.host)
	failed := code != "ok"
	switch {
	case failed && r.ask.final:
		c.w.tr.violated("I3 well again", "%s (%s to %s at %s) ended with %q after all faults had ended", r.id, r.kind, r.host, r.ask.Slot, code)
	case failed && !(code == "header_timeout" && r.ask.Delay > headerTimeout) && !explained(code, is, changed, r.opened.Load()):
		c.w.tr.violated("I3 true", "%s (%s to %s) ended with %q, for which there is no cause (%s)", r.id, r.kind, r.host, code, describe(is, changed))
	case code != lostConnection && c.late(r, r.revoked.Load(), at): // one may never have got as far as the node
		c.w.tr.violated("I3 revoked", "%s (%s to %s) ended with %q at %.4fs; its host was revoked at %.4fs", r.id, r.kind, r.host, code, ended.Seconds(), r.revoked.Load().t.Seconds())
	case failed && c.late(r, r.brokeAt.Load(), at):
		c.w.tr.violated("I3 prompt", "%s (%s to %s) ended with %q at %.4fs; its data socket had broken at %.4fs", r.id, r.kind, r.host, code, ended.Seconds(), r.brokeAt.Load().t.Seconds())
	case code == "refused" && !c.w.wire.refusedWithin(r.host, began, ended):
		c.w.tr.violated("I3 true", "%s (%s to %s) ended with \"refused\", and the host has refused nothing", r.id, r.kind, r.host)
	case !is[nodeFault] && !is[clientFault] && ended-began > c.bound(r, code, is, changed):
		c.w.tr.violated("I3 quick", "%s (%s to %s) took %v to end with %q (%s)", r.id, r.kind, r.host, ended-began, code, describe(is, changed))
	}
}

// explained reports whether there is a cause for a code.
func explained(code string, is [faultKinds]bool, changed, opened bool) bool {
	node, shop, part, host, client := is[nodeFault], is[storeFault], is[partFault], is[hostFault], is[clientFault]
	control := is[controlFault]
	switch code {
	case "host_offline":
		return changed || node || shop || part
	case "host_gone":
		return changed || node || shop || part || host || control
	case "host_replaced":
		return changed
	case "offline": // a WebSocket's: any of these
		return changed || node || shop || part || host || control
	case "store_unavailable":
		return shop || node
	case "draining", "restart":
		return node
	case "node_unreachable":
		return node || part
	case "no_dial_back":
		return host || node || part || shop // a node that has no lease is not found by its tickets
	case "refused":
		return changed || host || node || part || shop // a dial-back to a node without a lease, which the host cannot place
	case "stream_closed":
		return host || node || part
	case broken:
		return host || node || part || client
	case "header_timeout":
		return host || node || part
	case "revoked":
		return host || node // one that was stopped hears of it late
	case lostConnection:
		return client || node
	}
	return false // internal, bad_answer, unauthorized and the like: never
}

// headerTimeout is ResponseHeaderTimeout.
const headerTimeout = 65 * time.Second

// bound is how long a request may take to end with a code: the bounds that
// PROTOCOL.md has, with some time for delays of the network.
func (c *causes) bound(r *request, code string, is [faultKinds]bool, changed bool) time.Duration {
	const (
		grace    = 2 * time.Second // ReconnectGrace
		dial     = 10 * time.Second
		proof    = 2 * time.Second
		call     = time.Second // StoreTimeout, NodeTimeout
		header   = headerTimeout
		slack    = time.Second
		handover = grace + 2*call
	)
	lasts := r.ask.lasts() + 40*c.w.schedule.slowestDelay()
	before := time.Duration(0)
	if r.repeatable { // a service may have had it, or a spare carried it, when it was sent again
		before = r.ask.lasts() + dial
	}
	disturbed := changed
	for _, x := range is {
		disturbed = disturbed || x
	}
	if is[hostFault] && r.opened.Load() {
		return longestWait // a stream that carried something may be silent for StallTimeout
	}
	switch code {
	case "ok":
		if !disturbed {
			return lasts + slack
		}
		return dial + proof + header + lasts + slack
	case "host_offline", "store_unavailable":
		if is[hostFault] || is[controlFault] || is[partFault] {
			return before + proof + dial + handover + slack // a dial was under way, and its socket ended
		}
		return before + proof + handover + slack
	case "no_dial_back", "host_gone", "host_replaced", "node_unreachable", "refused", "offline":
		return before + proof + dial + slack
	}
	return dial + proof + header + lasts + slack
}

// lasts is how long what is asked for takes where nothing is wrong.
func (a ask) lasts() time.Duration {
	return a.Read + a.Delay + time.Duration(a.Chunks)*a.Gap
}

func describe(is [faultKinds]bool, changed bool) string {
	names := [faultKinds]string{"node", "store", "partition", "host", "control socket", "client"}
	s := ""
	for k, x := range is {
		if x {
			s += names[k] + ", "
		}
	}
	if changed {
		s += "the Store's naming changed, "
	}
	if s == "" {
		return "nothing was wrong"
	}
	return "around it: " + s[:len(s)-2]
}
