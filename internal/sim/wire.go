package sim

import (
	"bytes"
	"strings"
	"sync"
	"time"
)

// wire observes what nodes write to hosts. Its rules:
//
//   - I1, dial: a stream:dial whose path names a request goes out only on a
//     socket that the Store has named at some moment since that request began.
//   - I1, redemption: a dial-back is taken (101 at the node of its ticket) only
//     if the Store has named the socket of its dial at some moment since that
//     node had read the dial-back.
//   - I1, service: a service gets a request or stream only through a data socket
//     whose dial's socket the Store has named at some moment since it began. For
//     a data socket that has served before (pooled) it may have been a second
//     earlier: a stream is taken on a generation that was read within the last
//     second.
//   - I2: a pong is written only after a call of Store.Ping that began after the
//     ping had been read, and that said current.
//   - I2, hello: a hello goes out only on a socket that the Store has named, with
//     the generation that it gave.
//   - I7, retired mark: a node closes a control socket with 4401, 4403, 4408,
//     4409 or 1012 only when the Store no longer names it.
//
// Excused is a node in degraded mode (design, section 9): one of whose calls of
// the Store has failed within the last degradedFor, or has not ended; for I1
// either the node of the request or that of the socket. And a mark that could
// not be written: the node's Retire has failed.
type wire struct {
	w *World

	// Guarded by mu, which comes after tap.mu.
	mu       sync.Mutex
	dials    map[string]*dialing // by ticket
	refusals []refusalSeen
}

// dialing is one stream:dial that went out.
type dialing struct {
	ticket string
	sock   *sockTruth
	kind   string
	id     string // of the request, if the path names one
	at     stamp
	data   []*tap // the host's data sockets for it

	uses []use
}

// use is a request or stream whose bytes were written to the data socket.
type use struct {
	id string
	at stamp
}

type refusalSeen struct {
	host string
	at   stamp
}

// degradedFor is how long after a failed call a node may take the Store for
// out: its prober asks each second, and a call may take one.
const degradedFor = 2500 * time.Millisecond

// pooledFor is the bound of I1 for pooled streams.
const pooledFor = time.Second

func newWire(w *World) *wire { return &wire{w: w, dials: make(map[string]*dialing)} }

// dialed: a stream:dial goes out on the control socket t.
func (wr *wire) dialed(t *tap, f frame) {
	sock := wr.w.ledger.socket(t.addr)
	at := wr.w.tr.log("%s: dials %s/%s of %s, %s kind %s %s", t.node.label, t.from.label, t.addr, t.host, short(f.Ticket), f.Kind, f.Path)
	if sock == nil {
		wr.w.tr.violated("I1 dial", "a dial went out on %s/%s, which was never claimed", t.host, t.addr)
		return
	}
	d := &dialing{ticket: f.Ticket, sock: sock, kind: f.Kind, id: markedID([]byte(f.Path)), at: at}
	wr.mu.Lock()
	wr.dials[f.Ticket] = d
	wr.mu.Unlock()
	if r := wr.w.outcomes.find(d.id); r != nil {
		if last, now := wr.w.ledger.lastNamed(sock); !now && last.before(r.began) && !wr.excused(t.node, r) {
			wr.w.tr.violated("I1 dial", "%s of %.4fs was dialed on %s, which the Store had not named since %.4fs", r.id, r.began.t.Seconds(), sock.name(), last.t.Seconds())
		}
	}
}

// excused: the node of the socket or that of the request is in degraded mode.
func (wr *wire) excused(n *nodeProc, r *request) bool {
	since := wr.w.tr.now().t - degradedFor
	if n != nil && n.degradedSince(since) {
		return true
	}
	return r != nil && r.node != nil && r.node.degradedSince(r.began.t-degradedFor)
}

// dialedBack: the node takes a dial-back, or passes one on.
func (wr *wire) dialedBack(t *tap) {
	at := wr.w.tr.now()
	wr.mu.Lock()
	d := wr.dials[t.ticket]
	if d != nil && t.kind == kindData {
		d.data = append(d.data, t)
	}
	wr.mu.Unlock()
	if d == nil {
		wr.w.tr.violated("I1 redemption", "a dial-back of %s was taken for %s, which was never dialed", t.host, short(t.ticket))
		return
	}
	node, _, _ := strings.Cut(t.ticket, ".")
	if node != t.node.id {
		return // it only passes through
	}
	last, now := wr.w.ledger.lastNamed(d.sock)
	if now || !last.before(t.begun) || t.node.degradedSince(t.begun.t-degradedFor) {
		return
	}
	wr.w.tr.violated("I1 redemption", "%s took a dial-back at %.4fs for %s, which the Store had not named since %.4fs", t.node.label, at.t.Seconds(), d.sock.name(), last.t.Seconds())
}

// marker frames the id of a request or stream in what is sent for it.
var marker = []byte("sim~")

// markedID is the id that p names, or empty.
func markedID(p []byte) string {
	i := bytes.Index(p, marker)
	if i < 0 {
		return ""
	}
	id, _, ok := bytes.Cut(p[i+len(marker):], []byte("~"))
	if !ok || len(id) == 0 || len(id) > 16 {
		return ""
	}
	return string(id)
}

// sent: a message goes out on a host's data socket.
func (wr *wire) sent(t *tap, m message) {
	id := markedID(m.payload)
	f, isFrame := decode(m)
	if id == "" && !(isFrame && f.Type == "stream:open") {
		return
	}
	at := wr.w.tr.log("%s: sends %s %s on %s's data socket %s of %s", t.node.label, f.Type, id, t.from.label, t.addr, short(t.ticket))
	wr.mu.Lock()
	defer wr.mu.Unlock()
	if d := wr.dials[t.ticket]; d != nil {
		if id != "" {
			d.uses = append(d.uses, use{id, at})
		}
	}
}

// served: a service of process p has got the request or stream.
func (wr *wire) served(r *request, p *process) {
	d, pooled := wr.carrier(r.id, p)
	if d == nil {
		return // a v2 WebSocket that has sent nothing yet
	}
	last, now := wr.w.ledger.lastNamed(d.sock)
	if now {
		return
	}
	if pooled {
		last.t += pooledFor
		if last.t >= r.began.t {
			return
		}
	} else if !last.before(r.began) {
		return
	}
	if wr.excused(nil, r) || wr.excused(wr.w.nodeNamed(d.sock.att.Incarnation), r) {
		return
	}
	wr.w.tr.violated("I1 service", "%s, begun at %.4fs, came to %s through a data socket of %s, which the Store had not named since %.4fs (pooled: %v)",
		r.id, r.began.t.Seconds(), p.label, d.sock.name(), last.t.Seconds(), pooled)
}

// carrier is the dial through whose data socket to p the id was sent last, and
// whether the socket had served another before.
func (wr *wire) carrier(id string, p *process) (found *dialing, pooled bool) {
	wr.mu.Lock()
	defer wr.mu.Unlock()
	var newest stamp
	for _, d := range wr.dials {
		if len(d.data) == 0 || d.data[len(d.data)-1].from != p {
			continue
		}
		for i, u := range d.uses {
			if u.id == id && newest.before(u.at) {
				found, newest, pooled = d, u.at, i > 0
			}
		}
	}
	return found, pooled
}

// refusedBy: the host has refused a dial.
func (wr *wire) refusedBy(t *tap, _ frame) {
	at := wr.w.tr.now()
	wr.mu.Lock()
	defer wr.mu.Unlock()
	wr.refusals = append(wr.refusals, refusalSeen{t.host, at})
}

// refusedWithin reports whether the host has refused anything between two times.
func (wr *wire) refusedWithin(host string, from, to time.Duration) bool {
	wr.mu.Lock()
	defer wr.mu.Unlock()
	for _, r := range wr.refusals {
		if r.host == host && r.at.t >= from && r.at.t <= to {
			return true
		}
	}
	return false
}

// ponged: a pong goes out on the control socket t.
func (wr *wire) ponged(t *tap) {
	at := wr.w.tr.now()
	if len(t.pings) == 0 {
		wr.w.tr.violated("I2 pong", "%s wrote a pong to %s/%s that no ping asked for", t.node.label, t.host, t.addr)
		return
	}
	ping := t.pings[0]
	t.pings = t.pings[1:]
	sock := wr.w.ledger.socket(t.addr)
	if sock == nil {
		wr.w.tr.violated("I2 pong", "%s wrote a pong to %s/%s, which was never claimed", t.node.label, t.host, t.addr)
		return
	}
	c := t.node.seam.confirmation(sock.att.ID)
	if ping.before(c.current) || ping.before(c.failed) || t.node.degradedSince(at.t-degradedFor) {
		return
	}
	wr.w.tr.violated("I2 pong", "%s wrote a pong to %s for a ping of %.4fs; the Store had last said current when asked at %.4fs (its last word: current %v)",
		t.node.label, sock.name(), ping.t.Seconds(), c.current.t.Seconds(), c.told)
}

// helloed: a hello goes out on the control socket t.
func (wr *wire) helloed(t *tap, f frame) {
	sock := wr.w.ledger.socket(t.addr)
	if sock == nil || sock.att.Generation != f.Generation {
		wr.w.tr.violated("I2 hello", "%s wrote a hello of generation %d to %s/%s, which the Store has not given", t.node.label, f.Generation, t.host, t.addr)
	}
}

// closes: a close frame goes out on the control socket t.
func (wr *wire) closes(t *tap, code int) {
	switch code {
	case 4401, 4403, 4408, 4409, 1012:
	default:
		return
	}
	sock := wr.w.ledger.socket(t.addr)
	if sock == nil || wr.w.ledger.names(t.host) != sock {
		return
	}
	if t.node.seam.couldNotRetire(sock.att.ID) || t.node.degradedSince(wr.w.tr.now().t-degradedFor) || wr.w.ledger.lostSince(sock.claimed.t) {
		return
	}
	wr.w.tr.violated("I7 retired mark", "%s closed %s with %d while the Store names it", t.node.label, sock.name(), code)
}
