package sim

import (
	"sync"
	"sync/atomic"
	"time"
)

// outcomes observes every request and stream at both its ends. Its rules:
//
//   - I6: a service sees a request at most once, unless its method or an
//     Idempotency-Key makes it repeatable; a stream at most once always.
//   - I6, not reached: what is answered with one of the codes of which
//     PROTOCOL.md (section 12) says that the request has not reached the service
//     has not, at that moment or later; unless it is repeatable, so that the relay
//     may have sent it before.
//   - I4: bytes arrive as they were sent, in order, in both directions; a body,
//     an answer or a stream that ends cleanly is complete.
//   - I3 and I5: see causes.go.
type outcomes struct {
	w *World

	// Guarded by mu.
	mu   sync.Mutex
	all  map[string]*request
	ends map[string]int
}

// request is one request or stream of a client.
type request struct {
	// Immutable after begin.
	id         string
	kind       requestKind
	host       string
	node       *nodeProc // where the client is
	repeatable bool
	bodySize   int
	ask        ask
	began      stamp

	opened  atomic.Bool           // a stream has carried something
	revoked atomic.Pointer[stamp] // when its host was revoked while it was under way
	brokeAt atomic.Pointer[stamp] // when all data sockets of its host broke while a service had it

	// Guarded by outcomes.mu.
	seen    []sighting
	ended   stamp
	code    string // empty: it went well
	unknown bool   // the client lost its connection, and knows nothing
	left    bool   // the client has left
}

// sighting is a service that has got the request.
type sighting struct {
	p  *process
	at stamp
}

type requestKind string

const (
	get       requestKind = "GET"
	post      requestKind = "POST"
	byConnect requestKind = "connect"
	byDial    requestKind = "Dial"
	webSocket requestKind = "WebSocket"
)

// notReached are the codes after which a request has not reached the service.
var notReached = map[string]bool{
	"host_offline": true, "host_gone": true, "host_replaced": true, "store_unavailable": true, "draining": true,
	"node_limit": true, "host_limit": true, "no_dial_back": true, "refused": true,
}

func newOutcomes(w *World) *outcomes {
	return &outcomes{w: w, all: make(map[string]*request), ends: make(map[string]int)}
}

// begin notes a request that a client is about to send.
func (o *outcomes) begin(r *request) {
	where := "?"
	if r.node != nil {
		where = r.node.label
	}
	r.began = o.w.tr.log("%s %s to %s at %s", r.id, r.kind, r.host, where)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all[r.id] = r
}

func (o *outcomes) find(id string) *request {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all[id]
}

// served: the service of p has got the request or stream with that id.
func (o *outcomes) served(id string, p *process) {
	r := o.find(id)
	if r == nil {
		o.w.tr.violated("I4 bytes", "%s has got the unknown id %q", p.label, id)
		return
	}
	at := o.w.tr.log("%s has reached %s", id, p.label)
	o.w.wire.served(r, p)
	o.mu.Lock()
	r.seen = append(r.seen, sighting{p, at})
	n, code := len(r.seen), r.code
	o.mu.Unlock()
	if n > 1 && !r.repeatable {
		o.w.tr.violated("I6 at most once", "%s (%s) has reached a service %d times", id, r.kind, n)
	}
	if notReached[code] && !r.repeatable {
		o.w.tr.violated("I6 not reached", "%s was answered %s and has reached %s after that", id, code, p.label)
	}
}

// end notes how a request ended for its client.
func (o *outcomes) end(r *request, code string) {
	if code == "" {
		code = "ok"
	}
	at := o.w.tr.log("%s ends: %s", r.id, code)
	o.mu.Lock()
	r.ended = at
	o.ends[code]++
	switch code {
	case "ok":
	case lostConnection:
		r.unknown = true
	case clientLeft, halfClosed:
		r.left = true
	default:
		r.code = code
	}
	n := len(r.seen)
	o.mu.Unlock()
	switch {
	case notReached[code] && n > 0 && !r.repeatable:
		o.w.tr.violated("I6 not reached", "%s (%s) was answered %s and has reached a service %d times", r.id, r.kind, code, n)
	case code == "ok" && n == 0:
		o.w.tr.violated("I4 bytes", "%s was answered, and no service has seen it", r.id)
	}
	if !o.w.ending.Load() {
		o.w.causes.judge(r, code, at)
	}
}

// What a client finds that gets no answer of the relay's.
const (
	lostConnection = "lost connection"
	clientLeft     = "client left"
	halfClosed     = "client half closed" // what a client finds that ended its direction
	timedOut       = "no end"
	broken         = "broken off" // a stream or an answer, after it had begun
)

// working lists what a service of the host has got, has not answered, and may
// not get again. What a process had that has vanished does not count: its end is
// another's.
func (o *outcomes) working(host string) []*request {
	o.mu.Lock()
	defer o.mu.Unlock()
	var list []*request
	for _, r := range o.all {
		if r.host == host && r.ended.n == 0 && len(r.seen) > 0 && !r.seen[len(r.seen)-1].p.isDead() && !r.repeatable && !r.ask.final {
			list = append(list, r)
		}
	}
	return list
}

// under lists what is under way to the host, if it has had the time to reach its
// node.
func (o *outcomes) under(host string) []*request {
	arrived := o.w.tr.now().t - 10*o.w.schedule.slowestDelay()
	o.mu.Lock()
	defer o.mu.Unlock()
	var list []*request
	for _, r := range o.all {
		if r.host == host && r.ended.n == 0 && !r.ask.final && r.began.t <= arrived {
			list = append(list, r)
		}
	}
	return list
}

// open lists what has not ended.
func (o *outcomes) open() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var ids []string
	for id, r := range o.all {
		if r.ended.n == 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// patternOf is where the pattern of an id begins. Two ids have the same bytes
// nowhere near each other, and two positions differ.
func patternOf(id string) uint32 {
	h := uint32(2166136261)
	for k := range len(id) {
		h = (h ^ uint32(id[k])) * 16777619
	}
	return h
}

// patterned is n bytes of what is sent for an id, from position at on.
func patterned(id string, at, n int) []byte {
	h := patternOf(id) + uint32(at)*2654435761
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(h >> 13)
		h += 2654435761
	}
	return p
}

// differs is the first position at which p is not the pattern, or -1.
func differs(id string, at int, p []byte) int {
	h := patternOf(id) + uint32(at)*2654435761
	for i, c := range p {
		if c != byte(h>>13) {
			return at + i
		}
		h += 2654435761
	}
	return -1
}

// longestWait bounds every client: longer than any bound of the relay's.
const longestWait = 3 * time.Minute
