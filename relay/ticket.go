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
	err  error // errAgain: issue anew
}

// dial is one issue of a ticket: one stream:dial on one control socket.
type dial struct {
	// Immutable after issue.
	ticket   string
	hostID   string
	att      store.Ref
	streamID string
	spec     dialSpec

	// result has room for the one outcome that counts.
	result chan outcome

	// Guarded by mu.
	mu      sync.Mutex
	settled bool
	ack     *time.Timer // proto 3: fires when no ack came
}

// settle decides the dial. Only the first outcome counts; false means that it
// was decided before, and a data socket is the caller's to close.
func (d *dial) settle(o outcome) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.settled {
		return false
	}
	d.settled = true
	if d.ack != nil {
		d.ack.Stop()
	}
	d.result <- o
	return true
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

func (t *tickets) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.pending)
}
