package main

import (
	"io"
	"net"
	"sync"
)

// balancer gives each new connection to the next node. It looks at no byte of
// it: it does not know which host a connection is for, nor which node holds
// that host. Any load balancer will do in its place.
type balancer struct {
	url string
	ln  net.Listener

	wg sync.WaitGroup // serve, and all carry

	// Guarded by mu.
	mu    sync.Mutex
	nodes []string // host:port
	next  int
	open  map[net.Conn]bool // nil when stopped
}

func startBalancer() (*balancer, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &balancer{url: "http://" + ln.Addr().String(), ln: ln, open: make(map[net.Conn]bool)}
	b.wg.Go(b.serve)
	return b, nil
}

// use replaces the list of nodes. Connections that are open stay.
func (b *balancer) use(nodes []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes = nodes
}

// stop ends all connections and waits for its goroutines.
func (b *balancer) stop() {
	b.ln.Close()
	b.mu.Lock()
	open := b.open
	b.open = nil
	b.mu.Unlock()
	for c := range open {
		c.Close()
	}
	b.wg.Wait()
}

func (b *balancer) serve() {
	for {
		client, err := b.ln.Accept()
		if err != nil {
			return // stopped
		}
		b.wg.Go(func() { b.carry(client) })
	}
}

// carry copies between a client and a node until both have sent all, or one
// fails.
func (b *balancer) carry(client net.Conn) {
	defer client.Close()
	node := b.dial()
	if node == nil {
		return
	}
	defer node.Close()
	if !b.adopt(client, node) {
		return
	}
	defer b.forget(client, node)
	var wg sync.WaitGroup
	wg.Go(func() { pass(node, client) })
	pass(client, node)
	wg.Wait()
}

// pass copies from src to dst. The end of src is passed on, an error ends both.
func pass(dst, src net.Conn) {
	if _, err := io.Copy(dst, src); err == nil {
		err = dst.(*net.TCPConn).CloseWrite()
		if err == nil {
			return
		}
	}
	dst.Close()
	src.Close()
}

// dial connects to the next node that accepts, or returns nil.
func (b *balancer) dial() net.Conn {
	b.mu.Lock()
	nodes, first := b.nodes, b.next
	b.next++
	b.mu.Unlock()
	for i := range nodes {
		if c, err := net.Dial("tcp", nodes[(first+i)%len(nodes)]); err == nil {
			return c
		}
	}
	return nil
}

// adopt notes connections for stop to close, and says whether it still can.
func (b *balancer) adopt(conns ...net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == nil {
		return false
	}
	for _, c := range conns {
		b.open[c] = true
	}
	return true
}

func (b *balancer) forget(conns ...net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range conns {
		delete(b.open, c)
	}
}
