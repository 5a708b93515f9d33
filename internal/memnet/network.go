package memnet

import (
	"context"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
)

// addr is an address of the network, compared to the letter.
type addr string

func (a addr) Network() string { return "mem" }
func (a addr) String() string  { return string(a) }

// Network is a set of listeners by address. The zero value is ready to use.
// All methods may be called concurrently.
type Network struct {
	// OnDial, if set, gets both ends of each new connection, before the server
	// sees its end: the place to keep them for Freeze and Cut. It is called on
	// the goroutine of DialContext, without locks. Set it before the first dial.
	OnDial func(client, server *Conn)

	// Guarded by mu. Never held while waiting.
	mu        sync.Mutex
	listeners map[addr]*listener
	dials     int // numbers the clients' ports
}

// Listen opens a listener at an address such as "relay:80", which must be
// free; else the error matches syscall.EADDRINUSE. The address is taken to the
// letter. Closing the listener frees it.
func (n *Network) Listen(address string) (net.Listener, error) {
	l := &listener{network: n, addr: addr(address)}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[l.addr] != nil {
		return nil, &net.OpError{Op: "listen", Net: l.addr.Network(), Addr: l.addr,
			Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
	}
	if n.listeners == nil {
		n.listeners = make(map[addr]*listener)
	}
	n.listeners[l.addr] = l
	return l, nil
}

// DialContext connects to the listener at an address, whatever the network is
// called; it fits http.Transport.DialContext. It returns as soon as the
// connection is in the listener's backlog, and waits for room there, or for
// ctx. Without a listener the error matches syscall.ECONNREFUSED. The
// connection is a *Conn.
func (n *Network) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	to := addr(address)
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: to.Network(), Addr: to, Err: err}
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	l, from := n.find(to)
	if l == nil {
		return fail(os.NewSyscallError("connect", syscall.ECONNREFUSED))
	}
	client, server := newPair(from, to)
	if n.OnDial != nil {
		n.OnDial(client, server)
	}
	if err := l.offer(ctx, server); err != nil {
		client.Cut()
		return fail(err)
	}
	return client, nil
}

// find returns the listener at an address, nil if none, and a fresh address
// for the client.
func (n *Network) find(to addr) (*listener, addr) {
	const firstPort, ports = 49152, 16384 // the ephemeral range
	n.mu.Lock()
	defer n.mu.Unlock()
	port := firstPort + n.dials%ports
	n.dials++
	return n.listeners[to], addr("127.0.0.1:" + strconv.Itoa(port))
}

func (n *Network) forget(l *listener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[l.addr] == l {
		delete(n.listeners, l.addr)
	}
}
