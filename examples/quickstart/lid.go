package main

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// lid is the lid of a laptop. Closing it stops the network without telling
// anybody: what is sent is lost, nothing arrives, and both ends believe that
// they are connected. That is how machines really vanish.
type lid struct {
	once   sync.Once
	closed chan struct{}
}

func newLid() *lid { return &lid{closed: make(chan struct{})} }

func (l *lid) close() { l.once.Do(func() { close(l.closed) }) }

func (l *lid) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// transport makes the connections of the laptop.
func (l *lid) transport() *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &lidConn{Conn: c, lid: l, gone: make(chan struct{})}, nil
	}}
}

// lidConn is one connection of a laptop.
type lidConn struct {
	net.Conn
	lid  *lid
	once sync.Once
	gone chan struct{} // closed by Close
}

func (c *lidConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.lid.isClosed() {
		<-c.gone // nothing arrives, not even the end
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *lidConn) Write(p []byte) (int, error) {
	if c.lid.isClosed() {
		return len(p), nil // into a queue that nobody empties
	}
	return c.Conn.Write(p)
}

func (c *lidConn) Close() error {
	c.once.Do(func() { close(c.gone) })
	return c.Conn.Close()
}
