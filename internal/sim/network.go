package sim

import (
	"context"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dialback/dialback/internal/memnet"
)

// network joins the processes. A link is all connections from one actor to
// another, those to come included; faults are of links.
type network struct {
	w    *World
	base memnet.Network

	// Guarded by mu.
	mu    sync.Mutex
	links map[linkID]*link
	peers map[string]*tap // by the client's address, until the server accepts
}

// linkID is a direction to connect: from a host or node to a node.
type linkID struct{ from, to string }

type link struct {
	delay  time.Duration
	freeze direction
	block  blockKind
	conns  []*pair
}

// pair is the two ends of a connection.
type pair struct {
	client, server *memnet.Conn
	from           *process
	tap            *tap
}

// direction of what a freeze holds up, as seen by the one who connects.
type direction uint8

const (
	noDirection direction = iota
	inbound               // what it would receive
	outbound              // what it sends
	bothWays
)

// blockKind is what becomes of new connections.
type blockKind uint8

const (
	noBlock   blockKind = iota
	refused             // at once
	swallowed           // no answer
)

func newNetwork(w *World) *network {
	return &network{w: w, links: make(map[linkID]*link), peers: make(map[string]*tap)}
}

func (nw *network) linkLocked(id linkID) *link {
	l := nw.links[id]
	if l == nil {
		l = &link{delay: nw.w.schedule.delayOf(id)}
		nw.links[id] = l
	}
	return l
}

// dialer is a DialContext of process p. lead chooses the node for an address
// that names none.
func (nw *network) dialer(p *process, lead func() string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, _, addr string) (net.Conn, error) {
		to, _, _ := strings.Cut(addr, ":")
		if lead != nil {
			to = lead()
		}
		return nw.dial(ctx, p, to)
	}
}

// connectTimeout ends what nobody answers.
const connectTimeout = time.Minute

func refusal(errno syscall.Errno) error {
	return &net.OpError{Op: "dial", Net: "mem", Err: os.NewSyscallError("connect", errno)}
}

func (nw *network) dial(ctx context.Context, p *process, to string) (net.Conn, error) {
	if err := p.pass(ctx.Done()); err != nil {
		return nil, refusal(syscall.ENETUNREACH)
	}
	id := linkID{p.name, to}
	nw.mu.Lock()
	l := nw.linkLocked(id)
	block, delay := l.block, l.delay
	nw.mu.Unlock()
	if block == refused {
		return nil, refusal(syscall.ECONNREFUSED)
	}
	if block == swallowed { // as after the last SYN of a kernel
		pause(ctx, connectTimeout)
		return nil, refusal(syscall.ETIMEDOUT)
	}
	if delay > 0 { // the handshake's round trip
		t := time.NewTimer(2 * delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nw.connect(p, id)
}

// connect makes the connection with the faults of its link.
func (nw *network) connect(p *process, id linkID) (net.Conn, error) {
	// Under mu from the connection to its entry: no fault misses it. A listener
	// that has room does not wait.
	nw.mu.Lock()
	defer nw.mu.Unlock()
	l := nw.linkLocked(id)
	if l.block != noBlock {
		return nil, refusal(syscall.EHOSTUNREACH)
	}
	var made *pair
	nw.base.OnDial = func(client, server *memnet.Conn) {
		made = &pair{client: client, server: server, from: p}
		client.SetDelay(l.delay)
		server.SetDelay(l.delay)
		made.freeze(l.freeze)
		made.tap = newTap(nw.w, p, client.LocalAddr().String())
		nw.peers[client.LocalAddr().String()] = made.tap
	}
	if _, err := nw.base.DialContext(context.Background(), "mem", id.to); err != nil {
		if made != nil {
			delete(nw.peers, made.client.LocalAddr().String())
		}
		return nil, err
	}
	l.conns = append(l.conns, made)
	return newGatedConn(made.client, p, nil), nil
}

// freeze freezes in one direction or both, as seen by the client.
func (pr *pair) freeze(d direction) {
	switch d {
	case bothWays:
		pr.client.Freeze()
	case inbound:
		pr.server.FreezeWrites()
	case outbound:
		pr.client.FreezeWrites()
	}
}

func (pr *pair) cut() {
	pr.client.Cut()
}

// tapOf is the tap of the connection from that address.
func (nw *network) tapOf(addr string) *tap {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	t := nw.peers[addr]
	delete(nw.peers, addr)
	return t
}

// matching returns the links whose ends match; "*" matches all. A host's name
// stands for all its processes.
func (nw *network) matchingLocked(id linkID) []*link {
	if id.from != "*" && id.to != "*" {
		return []*link{nw.linkLocked(id)}
	}
	var all []*link
	for other, l := range nw.links {
		if (id.from == "*" || id.from == other.from) && (id.to == "*" || id.to == other.to) {
			all = append(all, l)
		}
	}
	return all
}

// setFreeze freezes or thaws links, their connections included.
func (nw *network) setFreeze(id linkID, d direction) {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	for _, l := range nw.matchingLocked(id) {
		l.freeze = d
		for _, pr := range l.conns {
			if d == noDirection {
				pr.client.Thaw()
			} else {
				pr.freeze(d)
			}
		}
	}
}

// setBlock refuses or swallows new connections, or takes them again.
func (nw *network) setBlock(id linkID, b blockKind) {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	for _, l := range nw.matchingLocked(id) {
		l.block = b
	}
}

// setDelay changes the delay of what is sent from now on.
func (nw *network) setDelay(id linkID, d time.Duration) {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	for _, l := range nw.matchingLocked(id) {
		l.delay = d
		for _, pr := range l.conns {
			pr.client.SetDelay(d)
			pr.server.SetDelay(d)
		}
	}
}

// cut breaks the connections of a kind; any is the empty kind.
func (nw *network) cut(id linkID, kind string) {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	for _, l := range nw.matchingLocked(id) {
		keep := l.conns[:0]
		for _, pr := range l.conns {
			if kind == "" || pr.tap.is(kind) {
				pr.cut()
			} else {
				keep = append(keep, pr)
			}
		}
		l.conns = keep
	}
}

// halfClose ends one direction of the connections of a kind.
func (nw *network) halfClose(id linkID, kind string, d direction) {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	for _, l := range nw.matchingLocked(id) {
		for _, pr := range l.conns {
			switch {
			case !pr.tap.is(kind):
			case d == inbound:
				pr.server.CloseWrite()
			default:
				pr.client.CloseWrite()
			}
		}
	}
}

// drop breaks what a dead process has open, or leaves it as if the process had
// vanished: no end reaches the other side until the link thaws.
func (nw *network) drop(p *process, vanish bool) {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	for id, l := range nw.links {
		for _, pr := range l.conns {
			mine := pr.from == p || id.to == p.name && pr.tap.servedBy(p)
			if !mine {
				continue
			}
			if vanish {
				pr.client.Freeze()
			} else {
				pr.cut()
			}
		}
	}
}

// thawDropped lets the ends of vanished processes' connections arrive.
func (nw *network) thawDropped(p *process) {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	for _, l := range nw.links {
		for _, pr := range l.conns {
			if pr.from == p {
				pr.cut()
			}
		}
	}
}

// held reports whether anything of an actor's is frozen or vanished, so that a
// break may not get through at once.
func (nw *network) held(name string) bool {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	for id, l := range nw.links {
		if id.from == name && (l.freeze != noDirection || l.delay != nw.w.schedule.delayOf(id)) {
			return true
		}
	}
	return false
}

// cutServed breaks what a dead process had accepted and left frozen.
func (nw *network) cutServed(p *process) {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	for id, l := range nw.links {
		if id.to != p.name {
			continue
		}
		for _, pr := range l.conns {
			if pr.tap.servedBy(p) {
				pr.cut()
			}
		}
	}
}

// heal ends all faults of links.
func (nw *network) heal() {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	for id, l := range nw.links {
		l.block, l.freeze, l.delay = noBlock, noDirection, nw.w.schedule.delayOf(id)
		for _, pr := range l.conns {
			pr.client.Thaw()
			pr.client.SetDelay(l.delay)
			pr.server.SetDelay(l.delay)
		}
	}
}

// listen gives process p, of a node, the address of its name.
func (nw *network) listen(p *process, addr string) (net.Listener, error) {
	ln, err := nw.base.Listen(addr)
	if err != nil {
		return nil, err
	}
	return &gatedListener{ln, nw, p}, nil
}

// gatedListener accepts while its process runs.
type gatedListener struct {
	net.Listener
	nw *network
	p  *process
}

func (l *gatedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if err := l.p.pass(nil); err != nil {
		c.Close()
		return nil, net.ErrClosed
	}
	t := l.nw.tapOf(c.RemoteAddr().String())
	t.acceptedBy(l.p)
	return newGatedConn(c.(*memnet.Conn), l.p, t), nil
}
