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
		gate := storetest.NewFaulty(c.Store)
		cfg := relay.Config{
			Store: gate, AuthorizeHost: relay.AllowAll, AuthorizeClient: relay.AllowAll,
			Node: relay.Node{ID: fmt.Sprintf("node%d", i), URL: "http://" + addr, Key: clusterKey, DialContext: network.DialContext},
		}
		node := newServer(t, network, addr, cfg, o)
		node.gate = gate
		c.Nodes = append(c.Nodes, node)
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

// Kill ends the node as kill -9 does: its connections break, its address
// refuses, and the Store learns nothing.
func (s *Server) Kill() {
	s.gate.Set("*", storetest.Fault{Err: errKilled})
	s.http.Close()
	s.mu.Lock()
	conns := s.accepted
	s.mu.Unlock()
	for _, c := range conns {
		c.Cut()
	}
}

// Freeze stops the node as SIGSTOP does, for the network: no byte gets in or
// out any more, and what connects to it waits.
func (s *Server) Freeze() {
	s.mu.Lock()
	s.frozen = true
	conns := s.accepted
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
	if mc, ok := c.(*memnet.Conn); ok {
		l.s.mu.Lock()
		l.s.accepted = append(l.s.accepted, mc)
		if l.s.frozen {
			mc.Freeze()
		}
		l.s.mu.Unlock()
	}
	return c, err
}

// DialBackAs answers a dial through this node, whichever node sent it.
func (s *Server) DialBackAs(hostID string, d transport.StreamDial) (transport.Conn, error) {
	q := url.Values{"hostId": {hostID}, "ticket": {d.Ticket}}
	return s.DialWS(context.Background(), "/v2/dial?"+q.Encode(), nil)
}
