package agent

import (
	"context"
	"crypto/tls"
	"net"
	"net/url"
	"strings"
	"time"
)

// localConn is a connection to a local service. One exchange uses it at a time.
type localConn struct {
	net.Conn
	hop  *hop
	in   source // what the service sends
	peek func() bool

	// Owned by the exchange, or by the hop while it is idle.
	idleSince time.Time
	idleFor   time.Duration // until then it may be used again
	announced bool          // idleFor is what the service has announced
}

// dialError is a dial of the service that failed.
type dialError struct {
	err error
	tls bool // in the TLS handshake
}

func (e *dialError) Error() string { return "agent: service down: " + e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// dial opens a connection. Connect and TLS handshake have a timeout each.
func (h *hop) dial(ctx context.Context) (*localConn, error) {
	conn, err := h.connect(ctx)
	if err != nil {
		return nil, &dialError{err: err}
	}
	if h.tls != nil {
		if conn, err = h.handshake(ctx, conn); err != nil {
			return nil, &dialError{err: err, tls: true}
		}
	}
	c := &localConn{Conn: conn, hop: h, in: newSource(conn)}
	c.peek = peeker(transportOf(conn))
	if !h.add(c) {
		c.close()
		return nil, &dialError{err: net.ErrClosed}
	}
	return c, nil
}

func (h *hop) connect(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	return h.dialContext(ctx, "tcp", h.addr)
}

func (h *hop) handshake(ctx context.Context, conn net.Conn) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	t := tls.Client(conn, h.tls)
	if err := t.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return t, nil
}

// tlsConfig is a copy of cfg, which may be nil, for a service of that name that
// speaks HTTP/1.1.
func tlsConfig(cfg *tls.Config, name string) *tls.Config {
	if cfg = cfg.Clone(); cfg == nil {
		cfg = new(tls.Config)
	}
	if cfg.ServerName == "" {
		cfg.ServerName, _, _ = strings.Cut(name, "%") // without the zone of an address
	}
	cfg.NextProtos = []string{"http/1.1"}
	return cfg
}

// dialAddr is the address of the target.
func dialAddr(target *url.URL) string {
	port := target.Port()
	switch {
	case port != "":
	case target.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return net.JoinHostPort(target.Hostname(), port)
}

// transportOf is the connection below TLS.
func transportOf(conn net.Conn) net.Conn {
	if t, ok := conn.(*tls.Conn); ok {
		return t.NetConn()
	}
	return conn
}

// Where a socket cannot be looked at, a connection that has been idle for
// lookAfter is read from for lookFor before it is used again.
const (
	lookAfter = 10 * time.Millisecond
	lookFor   = 100 * time.Microsecond
)

// quiet reports whether an idle connection is as it should be: the service has
// neither closed it nor sent anything.
func (c *localConn) quiet() bool {
	switch _, secure := c.Conn.(*tls.Conn); {
	case c.in.Buffered() > 0:
		return false
	case c.peek == nil:
		return time.Since(c.idleSince) < lookAfter || c.silentUntil(time.Now().Add(lookFor))
	case !c.peek():
		return false
	case secure: // something may wait above the socket; it is read without waiting
		return c.silentUntil(time.Unix(1, 0))
	}
	return true
}

// silentUntil reports whether a read brings nothing until then.
func (c *localConn) silentUntil(t time.Time) bool {
	if c.SetReadDeadline(t) != nil {
		return true // a connection without deadlines: its use will tell
	}
	var one [1]byte
	n, err := c.Read(one[:])
	return c.SetReadDeadline(time.Time{}) == nil && n == 0 && isTimeout(err)
}

// await waits for the first bytes of what the service sends, but not long, and
// reports whether they have come.
func (c *localConn) await(d time.Duration) bool {
	if c.SetReadDeadline(time.Now().Add(d)) != nil {
		return false
	}
	_, err := c.in.Peek(1) // an error comes again
	_ = c.SetReadDeadline(time.Time{})
	return err == nil
}

// close cuts the connection. That of TLS would wait to say goodbye.
func (c *localConn) close() {
	c.hop.remove(c)
	_ = transportOf(c.Conn).Close()
}
