package agent

import (
	"bytes"
	"net"
	"strconv"
	"time"
)

// Backoff is the reconnect logic of a Config without jitter.
type Backoff struct{ b *backoff }

func NewBackoff(cfg Config, rand func() float64) (*Backoff, error) {
	cfg.Rand = rand
	cfg, err := cfg.withDefaults()
	return &Backoff{newBackoff(&cfg)}, err
}

func (b *Backoff) Next(now time.Time, err error, lasted time.Duration) (time.Duration, bool) {
	return b.b.next(now, err, lasted)
}

// MaxOpenings is how many openings are remembered.
const MaxOpenings = maxOpenings

// Openings are the streams that an agent has opened.
type Openings struct{ o openings }

func NewOpenings(spareTimeout time.Duration) *Openings { return &Openings{newOpenings(spareTimeout)} }

// Forgotten is what a spare keeps that is dialed for now.
func (o *Openings) Forgotten() uint64 { return o.o.forgotten }

// ByDial reports whether a dial may open the stream, which it then has.
func (o *Openings) ByDial(id string, now time.Time) bool { return o.o.byDial(id, now) }

// BySpare reports whether such a spare may open the stream, which it then has.
func (o *Openings) BySpare(id string, forgotten uint64, now time.Time) bool {
	if o.o.mayBeOpen(id, forgotten, now) {
		return false
	}
	o.o.bySpare(id, now)
	return true
}

// KeepAliveTimeout is exported for its table.
func KeepAliveTimeout(value string) (time.Duration, bool) {
	h := head{keepAlive: [][]byte{[]byte(value)}}
	return h.keeps()
}

// Quiet reports whether a connection that has rested would be used again.
func Quiet(conn net.Conn) bool {
	c := &localConn{Conn: conn, in: newSource(conn), peek: peeker(transportOf(conn))}
	return c.quiet()
}

// ForwardHead is the head that goes to a service at host for a request that
// begins with p, and how many bytes of p that is. framing is "chunked", or the
// length of the body.
func ForwardHead(p []byte, base, host string) (out []byte, n int, framing string, err error) {
	src := newSource(bytes.NewReader(p))
	raw, err := src.peekHead()
	if err != nil {
		return nil, 0, "", err
	}
	var h head
	n = len(raw)
	if err := h.parseRequest(raw); err != nil {
		return nil, n, "", err
	}
	x := exchange{s: &httpStream{svc: &forwardService{base: base, host: host}}}
	if h.asksUpgrade() {
		x.upgrade = string(h.upgrade)
	}
	out, err = x.appendRequest(nil, &h)
	framing = strconv.FormatInt(max(h.length, 0), 10)
	if h.chunked {
		framing = "chunked"
	}
	return out, n, framing, err
}
