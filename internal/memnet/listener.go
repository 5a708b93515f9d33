package memnet

import (
	"context"
	"net"
	"os"
	"sync"
	"syscall"
)

// backlogSize is how many connections wait to be accepted before dials wait.
const backlogSize = 128

// listener accepts the connections to one address of a Network.
type listener struct {
	// Immutable after Network.Listen.
	network *Network
	addr    addr

	// Guarded by mu. Never held while waiting.
	mu      sync.Mutex
	backlog []*Conn // server ends, oldest first; at most backlogSize
	closed  bool
	wake    broadcast
}

// Accept waits for a connection, which is a *Conn, or for Close.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, wake, err := l.take()
		if err != nil {
			return nil, &net.OpError{Op: "accept", Net: l.addr.Network(), Addr: l.addr, Err: err}
		}
		if c != nil {
			return c, nil
		}
		<-wake
	}
}

// Close frees the address, wakes Accept and refuses the dials that wait.
// Connections in the backlog are cut, accepted ones are left alone.
func (l *listener) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return &net.OpError{Op: "close", Net: l.addr.Network(), Addr: l.addr, Err: net.ErrClosed}
	}
	l.closed = true
	unaccepted := l.backlog
	l.backlog = nil
	l.wake.notifyLocked()
	l.mu.Unlock()

	l.network.forget(l)
	for _, c := range unaccepted {
		c.Cut()
	}
	return nil
}

func (l *listener) Addr() net.Addr { return l.addr }

// take returns the oldest connection, or a channel that tells when to look
// again.
func (l *listener) take() (*Conn, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, nil, net.ErrClosed
	}
	if len(l.backlog) == 0 {
		return nil, l.wake.waitLocked(), nil
	}
	c := l.backlog[0]
	l.backlog = append(l.backlog[:0], l.backlog[1:]...)
	l.wake.notifyLocked() // room for a dial
	return c, nil, nil
}

// offer puts c into the backlog, waiting for room until ctx ends.
func (l *listener) offer(ctx context.Context, c *Conn) error {
	for {
		wake, err := l.put(c)
		if err != nil || wake == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wake:
		}
	}
}

// put adds c, or returns a channel that tells when to try again.
func (l *listener) put(c *Conn) (<-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, os.NewSyscallError("connect", syscall.ECONNREFUSED)
	}
	if len(l.backlog) >= backlogSize {
		return l.wake.waitLocked(), nil
	}
	l.backlog = append(l.backlog, c)
	l.wake.notifyLocked()
	return nil, nil
}
