package agent

import (
	"net"
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
