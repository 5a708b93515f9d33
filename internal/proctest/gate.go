package proctest

import (
	"net"
	"slices"
	"sync"
	"testing"
)

// Gate is a TCP proxy that a test can close, and that can hold back or lose
// single messages: what a network does at the worst moment. Its methods may be
// called concurrently.
type Gate struct {
	Addr string // where it listens

	// Immutable after NewGate.
	ln net.Listener

	running sync.WaitGroup

	// Guarded by mu.
	mu      sync.Mutex
	network string // of the server, as for net.Dial
	server  string
	cut     bool          // connections are refused
	stalled chan struct{} // closed when what is stalled may pass; nil if nothing is
	catches []*Catch      // that have caught nothing yet
	held    []*Catch      // that have
	open    map[*passage]struct{}
	over    bool
}

// NewGate listens at addr for the server. It ends with the test.
func NewGate(tb testing.TB, addr, network, server string) *Gate {
	tb.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	g := &Gate{ln: ln, Addr: ln.Addr().String(), network: network, server: server, open: make(map[*passage]struct{})}
	g.running.Go(g.accept)
	tb.Cleanup(g.close)
	return g
}

// close ends the gate and waits for its goroutines.
func (g *Gate) close() {
	_ = g.ln.Close()
	g.mu.Lock()
	g.over = true
	held := g.held
	g.mu.Unlock()
	g.Cut()
	g.SetStalled(false)
	for _, c := range held {
		c.Release()
	}
	g.running.Wait()
}

// SetCut cuts all connections and refuses new ones, or no longer does.
func (g *Gate) SetCut(cut bool) {
	g.mu.Lock()
	g.cut = cut
	g.mu.Unlock()
	if cut {
		g.Cut()
	}
}

// Cut resets the connections that there are. New ones pass.
func (g *Gate) Cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for p := range g.open {
		p.cutLocked()
	}
}

// Open is how many connections there are.
func (g *Gate) Open() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.open)
}

// SetStalled makes the gate a blackhole: connections are open, or opened, and
// neither a byte nor an end passes. When it ends, what has waited passes.
func (g *Gate) SetStalled(stalled bool) {
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

// Freeze makes a blackhole of the connections that there are, while new ones
// pass, and returns how many there are: a network that has forgotten them. thaw
// lets them go on, and what has waited passes, late. cut resets those that are
// left. One of the two must be called.
func (g *Gate) Freeze() (n int, thaw, cut func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	those := make(map[*passage]chan struct{})
	for p := range g.open {
		if p.frozen == nil {
			p.frozen = make(chan struct{})
			those[p] = p.frozen
		}
	}
	end := func(how func(*passage)) {
		g.mu.Lock()
		defer g.mu.Unlock()
		for p, frozen := range those {
			if p.frozen == frozen {
				how(p)
			}
		}
	}
	return len(those), func() { end((*passage).thawLocked) }, func() { end((*passage).cutLocked) }
}

// TurnTo leads to another server; connections to the one before are cut.
func (g *Gate) TurnTo(network, server string) {
	g.mu.Lock()
	g.network, g.server = network, server
	g.mu.Unlock()
	g.Cut()
}

func (g *Gate) accept() {
	for {
		client, err := g.ln.Accept()
		if err != nil {
			return
		}
		g.mu.Lock()
		network, addr, refuse := g.network, g.server, g.cut || g.over
		g.mu.Unlock()
		if refuse {
			reset(client)
			continue
		}
		server, err := net.Dial(network, addr)
		if err != nil {
			_ = client.Close()
			continue
		}
		p := &passage{g: g, client: client, server: server}
		g.mu.Lock()
		g.open[p] = struct{}{}
		if g.over || g.cut {
			p.cutLocked()
		}
		g.mu.Unlock()
		g.running.Go(p.requests)
		g.running.Go(p.replies)
	}
}

// passage is one connection through a gate.
type passage struct {
	g      *Gate
	client net.Conn
	server net.Conn

	frozen chan struct{} // closed when it may go on; nil if it is not frozen; guarded by g.mu

	mu    sync.Mutex
	reply *Catch // of the request that was passed last
}

// cutLocked resets both connections; its goroutines end by that. The caller
// holds g.mu.
func (p *passage) cutLocked() {
	reset(p.client)
	reset(p.server)
	p.thawLocked()
}

func (p *passage) thawLocked() {
	if p.frozen != nil {
		close(p.frozen)
		p.frozen = nil
	}
}

func reset(c net.Conn) {
	if tc, ok := c.(*net.TCPConn); ok {
		_ = tc.SetLinger(0)
	}
	_ = c.Close()
}

func (p *passage) end() {
	_ = p.client.Close()
	_ = p.server.Close()
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	delete(p.g.open, p)
}

func (p *passage) requests() {
	defer p.end()
	p.copy(p.server, p.client, func(b []byte) bool {
		c := p.g.match(b)
		switch {
		case c == nil:
		case c.what == HoldRequest:
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
		if c.what == HoldReply {
			<-c.released
		}
		return c.what == HoldReply
	})
}

// copy copies what it reads at once until a side ends or pass says so.
func (p *passage) copy(dst, src net.Conn, pass func([]byte) bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		p.await()
		if n > 0 {
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

// await waits while nothing may pass.
func (p *passage) await() {
	for {
		p.g.mu.Lock()
		wait := p.frozen
		if wait == nil {
			wait = p.g.stalled
		}
		p.g.mu.Unlock()
		if wait == nil {
			return
		}
		<-wait
	}
}

// match returns the catch for a request, which is for one only.
func (g *Gate) match(b []byte) *Catch {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.catches, func(c *Catch) bool { return c.matches(b) })
	if i < 0 {
		return nil
	}
	c := g.catches[i]
	g.catches = slices.Delete(g.catches, i, i+1)
	if g.held = append(g.held, c); g.over {
		c.Release()
	}
	return c
}
