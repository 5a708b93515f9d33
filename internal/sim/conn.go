package sim

import (
	"net"
	"sync"

	"github.com/dialback/dialback/internal/memnet"
)

// gatedConn is one end of a connection as its process uses it: nothing passes
// while the process is stopped. The end of a node is tapped.
type gatedConn struct {
	*memnet.Conn
	p   *process
	tap *tap // nil at the end of a host or client

	once   sync.Once
	closed chan struct{}
}

func newGatedConn(c *memnet.Conn, p *process, t *tap) *gatedConn {
	return &gatedConn{Conn: c, p: p, tap: t, closed: make(chan struct{})}
}

// Read gives the process bytes when it runs: what comes while it is stopped it
// sees when it goes on.
func (c *gatedConn) Read(p []byte) (int, error) {
	if err := c.p.pass(c.closed); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	if passed := c.p.pass(c.closed); passed != nil && n == 0 {
		return 0, passed
	}
	if c.tap != nil && n > 0 {
		c.tap.read(p[:n])
	}
	return n, err
}

// Write sends when the process runs.
func (c *gatedConn) Write(p []byte) (int, error) {
	if err := c.p.pass(c.closed); err != nil {
		return 0, err
	}
	if c.tap != nil {
		c.tap.wrote(p)
	}
	n, err := c.Conn.Write(p)
	if passed := c.p.pass(c.closed); passed != nil {
		return n, passed
	}
	return n, err
}

// CloseWrite ends this direction when the process runs.
func (c *gatedConn) CloseWrite() error {
	if err := c.p.pass(c.closed); err != nil {
		return err
	}
	return c.Conn.CloseWrite()
}

// Close wakes this end's calls at once; the other end learns of it when the
// process runs.
func (c *gatedConn) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		close(c.closed)
		err = nil
		c.p.whenRunning(func() { c.Conn.Close() })
		if c.p.isDead() {
			c.Conn.Close() // it is cut; this frees who waits for it
		}
	})
	return err
}
