package relay

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"sync"
	"time"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/transport"
)

// dialSpec is what a dial asks of the host.
type dialSpec struct {
	kind    string // transport.KindWS, KindHTTP, KindTCP
	path    string
	query   string
	service string
	proto   string // of a tcp dial: transport.ProtoHTTP, ProtoRaw
}

// outcome is how a dial ended: a data socket, or why there is none.
type outcome struct {
	conn transport.Conn
	via  string // the node through which conn passes, or empty
	err  error  // errReplaced and errGone: issue anew
}

// dial is one issue of a ticket: one stream:dial on one control socket.
type dial struct {
	// Immutable after issue.
	ticket   string
	hostID   string
	att      store.Ref
	streamID string
	spec     dialSpec

	// deliver takes the one outcome that counts. It must not block.
	deliver func(outcome)
	// result has room for it, if it is delivered here; else nil.
	result chan outcome

	// Guarded by mu.
	mu      sync.Mutex
	settled bool
	ack     *time.Timer // proto 3: fires when no ack came
	expiry  *time.Timer // of a dial for another node
}

// settle decides the dial. Only the first outcome counts; false means that it
// was decided before, and a data socket is the caller's to close.
func (d *dial) settle(o outcome) bool {
	d.mu.Lock()
	if d.settled {
		d.mu.Unlock()
		return false
	}
	d.settled = true
	for _, t := range []*time.Timer{d.ack, d.expiry} {
		if t != nil {
			t.Stop()
		}
	}
	d.mu.Unlock()
	d.deliver(o)
	return true
}

// expire arms the end of the bookkeeping for another node's dial.
func (d *dial) expire(after time.Duration, f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.settled {
		d.expiry = time.AfterFunc(after, f)
	}
}

// cancelExpiry stops what expire and expectAck have armed.
func (d *dial) cancelExpiry() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settled = true
	for _, t := range []*time.Timer{d.ack, d.expiry} {
		if t != nil {
			t.Stop()
		}
	}
}

func (d *dial) isSettled() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.settled
}

// expectAck arms the wait for an ack.
func (d *dial) expectAck(after time.Duration, overdue func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.settled {
		d.ack = time.AfterFunc(after, overdue)
	}
}

func (d *dial) acked() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ack != nil {
		d.ack.Stop()
	}
}

// tickets is the dials that wait on this node, by ticket. A ticket lives in
// memory only: a crash of the node kills ticket and client together.
type tickets struct {
	// Immutable.
	nodeID string
	key    []byte

	mu      sync.Mutex
	pending map[string]*dial
}

// issue makes a ticket for one dial of att's socket.
func (t *tickets) issue(att store.Attachment, streamID string, spec dialSpec) *dial {
	b := make([]byte, 16)
	rand.Read(b)
	head := t.nodeID + "." + base64.RawURLEncoding.EncodeToString(b)
	d := &dial{
		ticket: head + "." + t.mac(head, att.HostID), hostID: att.HostID, att: att.Ref(),
		streamID: streamID, spec: spec, result: make(chan outcome, 1),
	}
	d.deliver = func(o outcome) { d.result <- o }
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending[d.ticket] = d
	return d
}

// mac binds a ticket to its host, so that garbage costs no look-up anywhere.
func (t *tickets) mac(head, hostID string) string {
	m := hmac.New(sha256.New, t.key)
	m.Write([]byte("dialback ticket\x00" + head + "\x00" + hostID))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil)[:16])
}

// check reports whether ticket was issued for hostID under the shared key, and
// by which node.
func (t *tickets) check(ticket, hostID string) (nodeID string, ok bool) {
	i := strings.LastIndexByte(ticket, '.')
	if i < 0 || len(ticket) > 128 {
		return "", false
	}
	head, mac := ticket[:i], ticket[i+1:]
	nodeID, _, ok = strings.Cut(head, ".")
	return nodeID, ok && hmac.Equal([]byte(mac), []byte(t.mac(head, hostID)))
}

// take removes the ticket; only one caller gets its dial.
func (t *tickets) take(ticket string) *dial {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.pending[ticket]
	delete(t.pending, ticket)
	return d
}

// waits reports whether somebody here waits for the ticket.
func (t *tickets) waits(ticket string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pending[ticket] != nil
}

// takeOlder removes and returns the dials on sockets of the host before this one.
func (t *tickets) takeOlder(socket store.Ref) []*dial {
	t.mu.Lock()
	defer t.mu.Unlock()
	var older []*dial
	for ticket, d := range t.pending {
		if d.hostID == socket.HostID && before(d.att, socket) {
			older = append(older, d)
			delete(t.pending, ticket)
		}
	}
	return older
}

func (t *tickets) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.pending)
}
