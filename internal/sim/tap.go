package sim

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
	"sync"
)

// tap sees what a node reads and writes on one connection, and makes events of
// it for the observer of the wire. What a WebSocket carries is taken apart; of
// anything else only the request line is looked at.
type tap struct {
	// Immutable after newTap.
	w    *World
	from *process // who has connected
	addr string   // of its end

	// Guarded by mu.
	mu     sync.Mutex
	node   *nodeProc // who has accepted
	kind   string    // see kinds; empty while it is not known
	host   string    // hostId of the query
	ticket string
	begun  stamp // when the request line was read
	opened bool  // 101 was written
	head   []byte
	answer []byte
	in     frameParser
	out    frameParser

	// Of a control socket.
	pings   []stamp // not answered yet
	greeted bool    // a pong or hello was written
	closing bool    // a close frame was written
}

// The kinds of connections.
const (
	kindControl = "control"
	kindData    = "data"   // a host's dial-back
	kindHop     = "hop"    // one that a node hands over
	kindClient  = "client" // anything of a client's
	kindNode    = "node"   // calls between nodes
)

const maxHead = 8 << 10

func newTap(w *World, from *process, addr string) *tap { return &tap{w: w, from: from, addr: addr} }

func (t *tap) acceptedBy(p *process) {
	n := t.w.nodeOf(p)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.node = n
}

func (t *tap) servedBy(p *process) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.node != nil && t.node.process == p
}

// is reports whether the connection is of that kind; a hop is data too.
func (t *tap) is(kind string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.kind == kind || kind == kindData && t.kind == kindHop
}

// read is what the node has read.
func (t *tap) read(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kind == "" {
		t.head = append(t.head, p...)
		end := bytes.Index(t.head, []byte("\r\n\r\n"))
		if end < 0 {
			if len(t.head) > maxHead {
				t.kind = kindClient
			}
			return
		}
		t.classify(string(t.head[:bytes.IndexByte(t.head, '\r')]))
		p = t.head[end+4:]
		t.head = nil
	}
	if t.kind == kindControl || t.kind == kindData || t.kind == kindHop {
		t.in.parse(p, t.heard)
	}
}

// classify reads the request line.
func (t *tap) classify(line string) {
	t.begun = t.w.tr.now()
	_, rest, _ := strings.Cut(line, " ")
	target, _, _ := strings.Cut(rest, " ")
	path, query, _ := strings.Cut(target, "?")
	switch {
	case path == "/v2/control":
		t.kind = kindControl
	case path == "/v2/dial":
		t.kind = kindData
	case path == "/node/hop":
		t.kind = kindHop
	case strings.HasPrefix(path, "/node/"):
		t.kind = kindNode
	default:
		t.kind = kindClient
	}
	if t.kind == kindNode || t.kind == kindClient {
		return
	}
	q, _ := url.ParseQuery(query)
	t.host, t.ticket = q.Get("hostId"), q.Get("ticket")
	if t.kind != kindHop {
		t.w.tr.log("%s: %s %s from %s/%s %s", t.node.label, t.host, t.kind, t.from.label, t.addr, short(t.ticket))
	}
}

// short is what tells tickets apart in a trace.
func short(ticket string) string {
	if ticket == "" {
		return ""
	}
	node, rest, _ := strings.Cut(ticket, ".")
	return "ticket " + node + "." + rest[:min(5, len(rest))]
}

// wrote is what the node is about to write.
func (t *tap) wrote(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch t.kind {
	case kindControl, kindData, kindHop:
	default:
		return
	}
	if !t.opened {
		t.answer = append(t.answer, p...)
		end := bytes.Index(t.answer, []byte("\r\n\r\n"))
		if end < 0 {
			return
		}
		if !bytes.HasPrefix(t.answer, []byte("HTTP/1.1 101 ")) {
			t.w.tr.log("%s: answers %s/%s: %s", t.node.label, t.from.label, t.addr, t.answer[:bytes.IndexByte(t.answer, '\r')])
			t.kind = kindClient // an answer as any other
			return
		}
		t.opened = true
		if t.kind != kindControl {
			t.w.wire.dialedBack(t)
		}
		p = t.answer[end+4:]
		t.answer = nil
	}
	t.out.parse(p, t.told)
}

// frame is the members of control frames that the observers know; all others,
// and unknown frames, are none of theirs.
type frame struct {
	Type       string `json:"type"`
	Op         string `json:"op"`
	Ticket     string `json:"ticket"`
	Kind       string `json:"kind"`
	Path       string `json:"path"`
	Stream     string `json:"stream"`
	Service    string `json:"service"`
	Generation uint64 `json:"generation"`
	Status     int    `json:"status"`
	Reason     string `json:"reason"`
}

func decode(m message) (f frame, ok bool) {
	if m.op != 1 || json.Unmarshal(m.payload, &f) != nil {
		return f, false
	}
	if f.Type == "" {
		f.Type = f.Op
	}
	return f, f.Type != ""
}

// heard is a frame that the node has read.
func (t *tap) heard(m message) {
	f, ok := decode(m)
	if !ok {
		return
	}
	switch {
	case t.kind == kindControl && f.Type == "ping":
		t.pings = append(t.pings, t.w.tr.now())
	case f.Type == "stream:refuse":
		t.w.tr.log("%s: %s refuses %s: %d %s", t.node.label, t.from.label, short(f.Ticket), f.Status, f.Reason)
		t.w.wire.refusedBy(t, f)
	}
}

// told is a frame that the node writes.
func (t *tap) told(m message) {
	if t.kind != kindControl {
		if t.kind == kindData && (m.op == 1 || m.op == 2 || m.op == 0) {
			t.w.wire.sent(t, m)
		}
		return
	}
	if m.op == 8 {
		code := 1005
		if len(m.payload) >= 2 {
			code = int(m.payload[0])<<8 | int(m.payload[1])
		}
		first := !t.closing
		t.closing = true
		t.w.tr.log("%s: closes %s of %s with %d", t.node.label, t.addr, t.host, code)
		if first {
			t.w.wire.closes(t, code)
		}
		return
	}
	f, ok := decode(m)
	if !ok {
		return
	}
	switch f.Type {
	case "pong":
		t.greeted = true
		t.w.wire.ponged(t)
	case "hello":
		t.greeted = true
		t.w.tr.log("%s: hello to %s/%s of %s", t.node.label, t.from.label, t.addr, t.host)
		t.w.wire.helloed(t, f)
	case "stream:dial":
		t.w.wire.dialed(t, f)
	}
}
