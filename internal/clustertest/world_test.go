//go:build linux

package clustertest

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dialback/dialback/internal/proctest"
	"github.com/dialback/dialback/internal/redistest"
)

// world is a Redis and the nodes on it.
type world struct {
	// Immutable after newWorld.
	t       *testing.T
	net     string // the first three bytes of its addresses, with a dot at the end
	keyFile string
	redis   *redistest.Server
	nodes   []*node
}

// nodesPort is where nodes listen, each at an address of its own.
const nodesPort = "8080"

// newWorld starts n nodes on a Redis of their own. It ends with the test.
func newWorld(t *testing.T, n int) *world {
	t.Helper()
	return newWorldOn(t, n, redistest.Start(t))
}

// newWorldOn starts n nodes on that Redis.
func newWorldOn(t *testing.T, n int, redis *redistest.Server) *world {
	t.Helper()
	w := &world{t: t, net: proctest.Network(), redis: redis}
	w.keyFile = proctest.WriteFile(t, filepath.Join(t.TempDir(), "key"), "a key for the nodes of a test\n")
	for i := range n {
		w.addNode(i+1, fmt.Sprint("node", i+1))
	}
	for _, n := range w.nodes {
		n.AwaitUp()
	}
	return w
}

// node is one process of dialback serve behind two gates.
type node struct {
	*proctest.Node
	store *proctest.Gate // between the node and Redis
	calls *proctest.Gate // between the other nodes and this one
}

// addNode starts a node at address i of the network. Others may have its ID.
func (w *world) addNode(i int, id string) *node {
	w.t.Helper()
	addr := fmt.Sprint(w.net, i, ":", nodesPort)
	n := &node{
		store: proctest.NewGate(w.t, fmt.Sprint(w.net, 100+i, ":6379"), w.redis.Network, w.redis.Addr),
		calls: proctest.NewGate(w.t, fmt.Sprint(w.net, 200+i, ":", nodesPort), "tcp", addr),
	}
	w.nodes = append(w.nodes, n)
	n.Node = proctest.StartNode(w.t, proctest.NodeConfig{
		ID: id, Addr: addr, Store: "redis://" + n.store.Addr, Advertise: "http://" + n.calls.Addr, KeyFile: w.keyFile,
	})
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("log of %s, in its last life:\n%s", n.ID, events(n.P))
		}
	})
	return n
}

// events are the lines that a node printed last, without those about single
// calls.
func events(p *proctest.Process) string {
	const most = 100
	lines := slices.DeleteFunc(strings.Split(p.Output(), "\n"), func(l string) bool { return strings.Contains(l, " msg=failed ") })
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
