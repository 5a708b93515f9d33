package relaytest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/dialback/dialback/internal/memnet"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/memory"
	"github.com/dialback/dialback/store/storetest"
	"github.com/dialback/dialback/transport"
)

// Cluster is several relay nodes that share a Store and an in-memory network.
type Cluster struct {
	Nodes []*Server
	Store store.Store
}

// clusterKey authenticates the nodes of a Cluster to each other.
var clusterKey = []byte("relaytest: no secret of anybody's")

// NewCluster starts n nodes with the IDs node0, node1, and so on. o may be nil;
// its Config is called for each node.
func NewCluster(t testing.TB, n int, o *Options) *Cluster {
	t.Helper()
	c := &Cluster{Store: memory.New()}
	network := &memnet.Network{}
	for i := range n {
		addr := fmt.Sprintf("node%d.test:80", i)
		cfg := relay.Config{
			Store: c.Store, AuthorizeHost: relay.AllowAll, AuthorizeClient: relay.AllowAll,
			Node: relay.Node{ID: fmt.Sprintf("node%d", i), URL: "http://" + addr, Key: clusterKey, DialContext: network.DialContext},
		}
		c.Nodes = append(c.Nodes, newServer(t, network, addr, cfg, o))
	}
	return c
}

// Balanced returns a transport that connects to the nodes in turn, beginning
// with first, whatever node a URL names: a load balancer that knows nothing.
func (c *Cluster) Balanced(first int) *http.Transport {
	var next atomic.Int64
	next.Store(int64(first))
	tr := c.Nodes[0].Transport()
	tr.DialContext = func(ctx context.Context, network, _ string) (conn net.Conn, err error) {
		for range c.Nodes { // a balancer skips a node that refuses
			n := c.Nodes[int(next.Add(1)-1)%len(c.Nodes)]
			if conn, err = n.net.DialContext(ctx, network, n.addr); err == nil {
				return conn, nil
			}
		}
		return nil, err
	}
	return tr
}

var errKilled = errors.New("relaytest: the node was killed")

// Kill ends the node as kill -9 does: its connections break, it makes no new
// ones, its address refuses, and the Store learns nothing.
func (s *Server) Kill() {
	s.gate.Set("*", storetest.Fault{Err: errKilled})
	s.mu.Lock()
	s.killed = true
	conns := s.conns
	s.mu.Unlock()
	s.http.Close()
	for _, c := range conns {
		c.Cut()
	}
}

// Freeze stops the node as SIGSTOP does, for the network: no byte gets in or
// out any more, what connects to it waits, and so does what it connects to.
func (s *Server) Freeze() {
	s.mu.Lock()
	s.frozen = true
	conns := s.conns
	s.mu.Unlock()
	for _, c := range conns {
		c.Freeze()
	}
}

// listener remembers the connections of a node, so that it can be killed.
type listener struct {
	net.Listener
	s *Server
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.s.remember(c)
	}
	return c, err
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialFrom is how the node connects to others: with dial, unless it is frozen or
// killed. Nil means net.Dialer's, as in a relay.Node.
func (s *Server) dialFrom(dial dialFunc) dialFunc {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		s.mu.Lock()
		frozen, killed := s.frozen, s.killed
		s.mu.Unlock()
		switch {
		case killed:
			return nil, errKilled
		case frozen:
			<-ctx.Done()
			return nil, ctx.Err()
		}
		c, err := dial(ctx, network, addr)
		if err == nil {
			s.remember(c)
		}
		return c, err
	}
}

// remember keeps a connection of the node, which may be frozen or killed by now.
func (s *Server) remember(c net.Conn) {
	mc, ok := c.(*memnet.Conn)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, mc)
	switch {
	case s.killed:
		mc.Cut()
	case s.frozen:
		mc.Freeze()
	}
}

// DialBackAs answers a dial through this node, whichever node sent it.
func (s *Server) DialBackAs(hostID string, d transport.StreamDial) (transport.Conn, error) {
	q := url.Values{"hostId": {hostID}, "ticket": {d.Ticket}}
	return s.DialWS(context.Background(), "/v2/dial?"+q.Encode(), nil)
}
