//go:build linux

package clustertest

import (
	"bytes"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// gate is a TCP proxy that a test can close, and that can hold back or lose
// single messages: what a network does at the worst moment.
type gate struct {
	// Immutable after newGate.
	ln   net.Listener
	addr string

	running sync.WaitGroup

	// Guarded by mu.
	mu      sync.Mutex
	network string // of the server, as for net.Dial
	server  string
	cut     bool          // connections are refused
	stalled chan struct{} // closed when what is stalled may pass; nil if nothing is
	catches []*catch      // that have caught nothing yet
	held    []*catch      // that have
	open    map[net.Conn]struct{}
	over    bool
}

// newGate listens at addr for the server. It ends with the test.
func newGate(t *testing.T, addr, network, server string) *gate {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{ln: ln, addr: ln.Addr().String(), network: network, server: server, open: make(map[net.Conn]struct{})}
	g.running.Go(g.accept)
	t.Cleanup(g.close)
	return g
}

// close ends the gate and waits for its goroutines.
func (g *gate) close() {
	_ = g.ln.Close()
	g.mu.Lock()
	g.over = true
	held := g.held
	g.mu.Unlock()
	g.setStalled(false)
	for _, c := range held {
		c.release()
	}
	g.cutConns()
	g.running.Wait()
}

// setCut cuts all connections and refuses new ones, or no longer does.
func (g *gate) setCut(cut bool) {
	g.mu.Lock()
	g.cut = cut
	g.mu.Unlock()
	if cut {
		g.cutConns()
	}
}

// setStalled makes the gate a blackhole: connections are open, or opened, and
// no byte passes. When it ends, what has waited passes.
func (g *gate) setStalled(stalled bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case stalled && g.stalled == nil:
		g.stalled = make(chan struct{})
	case !stalled && g.stalled != nil:
		close(g.stalled)
		g.stalled = nil
	}
}

// turnTo leads to another server; connections to the one before are cut.
func (g *gate) turnTo(network, server string) {
	g.mu.Lock()
	g.network, g.server = network, server
	g.mu.Unlock()
	g.cutConns()
}

func (g *gate) cutConns() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.open {
		_ = c.Close()
	}
	clear(g.open)
}

// What a catch does with the request that it catches, or with its reply.
type action int

const (
	holdRequest action = iota
	holdReply
	loseReply // and cut the connection
)

// catch waits for one request that contains text.
type catch struct {
	text     []byte
	what     action
	caught   chan struct{} // closed when it has caught one
	released chan struct{} // closed by release
	once     sync.Once
}

// catch catches the next request that contains text, and no other.
func (g *gate) catch(what action, text string) *catch {
	c := &catch{text: []byte(text), what: what, caught: make(chan struct{}), released: make(chan struct{})}
	g.mu.Lock()
	g.catches = append(g.catches, c)
	g.mu.Unlock()
	return c
}

// await waits until something is caught.
func (c *catch) await(t *testing.T) {
	t.Helper()
	select {
	case <-c.caught:
	case <-time.After(patience):
		t.Fatalf("nothing passed that has %q in it", c.text)
	}
}

// release lets pass what is held. It may be called twice.
func (c *catch) release() { c.once.Do(func() { close(c.released) }) }

func (g *gate) accept() {
	for {
		client, err := g.ln.Accept()
		if err != nil {
			return
		}
		g.mu.Lock()
		network, addr, refuse := g.network, g.server, g.cut || g.over
		g.mu.Unlock()
		if refuse {
			_ = client.(*net.TCPConn).SetLinger(0)
			_ = client.Close()
			continue
		}
		server, err := net.Dial(network, addr)
		if err != nil {
			_ = client.Close()
			continue
		}
		p := &passage{g: g, client: client, server: server}
		g.mu.Lock()
		g.open[client], g.open[server] = struct{}{}, struct{}{}
		late := g.over || g.cut
		g.mu.Unlock()
		if late {
			p.end()
			continue
		}
		g.running.Go(p.requests)
		g.running.Go(p.replies)
	}
}

// passage is one connection through a gate.
type passage struct {
	g      *gate
	client net.Conn
	server net.Conn

	mu    sync.Mutex
	reply *catch // of the request that was passed last
}

func (p *passage) end() {
	_ = p.client.Close()
	_ = p.server.Close()
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	delete(p.g.open, p.client)
	delete(p.g.open, p.server)
}

func (p *passage) requests() {
	defer p.end()
	p.copy(p.server, p.client, func(b []byte) bool {
		c := p.g.match(b)
		switch {
		case c == nil:
		case c.what == holdRequest:
			close(c.caught)
			<-c.released
		default:
			p.mu.Lock()
			p.reply = c
			p.mu.Unlock()
		}
		return true
	})
}

func (p *passage) replies() {
	defer p.end()
	p.copy(p.client, p.server, func([]byte) bool {
		p.mu.Lock()
		c := p.reply
		p.reply = nil
		p.mu.Unlock()
		if c == nil {
			return true
		}
		close(c.caught)
		if c.what == holdReply {
			<-c.released
		}
		return c.what == holdReply
	})
}

// copy copies what it reads at once until a side ends or pass says so.
func (p *passage) copy(dst, src net.Conn, pass func([]byte) bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			p.g.awaitStall()
			if !pass(buf[:n]) {
				return
			}
			if _, werr := dst.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (g *gate) awaitStall() {
	g.mu.Lock()
	stalled := g.stalled
	g.mu.Unlock()
	if stalled != nil {
		<-stalled
	}
}

// match returns the catch for a request, which is for one only.
func (g *gate) match(b []byte) *catch {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.catches, func(c *catch) bool { return bytes.Contains(b, c.text) })
	if i < 0 {
		return nil
	}
	c := g.catches[i]
	g.catches = slices.Delete(g.catches, i, i+1)
	if g.held = append(g.held, c); g.over {
		c.release()
	}
	return c
}
