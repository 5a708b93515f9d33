//go:build linux

package clustertest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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
	w := &world{t: t, net: newNet(), redis: redis, keyFile: filepath.Join(t.TempDir(), "key")}
	if err := os.WriteFile(w.keyFile, []byte("a key for the nodes of a test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		w.addNode(i+1, fmt.Sprint("node", i+1))
	}
	for _, n := range w.nodes {
		n.awaitUp()
	}
	return w
}

// newNet is a network of 256 loopback addresses that nobody else uses.
func newNet() string { return fmt.Sprintf("127.%d.%d.", 1+rand.IntN(254), rand.IntN(256)) }

// node is one process of dialback serve.
type node struct {
	// Immutable after addNode.
	w     *world
	id    string
	addr  string
	url   string
	store *gate // between the node and Redis
	calls *gate // between the other nodes and this one

	p *process // of its present life; for the test's goroutine
}

// addNode starts a node at address i of the network. Others may have its ID.
func (w *world) addNode(i int, id string) *node {
	w.t.Helper()
	addr := fmt.Sprint(w.net, i, ":", nodesPort)
	n := &node{
		w: w, id: id, addr: addr, url: "http://" + addr,
		store: newGate(w.t, fmt.Sprint(w.net, 100+i, ":6379"), w.redis.Network, w.redis.Addr),
		calls: newGate(w.t, fmt.Sprint(w.net, 200+i, ":", nodesPort), "tcp", addr),
	}
	w.nodes = append(w.nodes, n)
	n.start()
	return n
}

// start starts the node's process, again with the same ID and address.
func (n *node) start() {
	n.w.t.Helper()
	n.p = start(n.w.t, program, "serve", "--listen", n.addr, "--store", "redis://"+n.store.addr,
		"--node-id", n.id, "--advertise", "http://"+n.calls.addr, "--node-key-file", n.w.keyFile, "--log-level", "info")
	p := n.p
	n.w.t.Cleanup(func() {
		if n.w.t.Failed() {
			n.w.t.Logf("log of %s:\n%s", n.id, p.out.events())
		}
	})
}

// awaitUp waits until the node serves.
func (n *node) awaitUp() {
	n.w.t.Helper()
	within(n.w.t, patience, n.id+" listens", func() bool {
		if n.p.hasEnded() {
			n.w.t.Fatalf("%s has ended\n%s", n.id, n.p.out)
		}
		return n.health() == http.StatusOK
	})
}

// health is the status of the node's /health, or 0 if it does not answer.
func (n *node) health() int {
	resp, err := onceClient.Get(n.url + "/health")
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// isDegraded reports whether the node says that it has no Store.
func (n *node) isDegraded() bool {
	resp, err := onceClient.Get(n.url + "/health")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	var health struct{ Degraded bool }
	return json.NewDecoder(resp.Body).Decode(&health) == nil && health.Degraded
}

// stop is SIGSTOP: the process stands still and its connections stay open. It
// returns when the process does stand still.
func (n *node) stop() {
	n.w.t.Helper()
	n.p.signal(syscall.SIGSTOP)
	within(n.w.t, patience, n.id+" stands still", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.p.cmd.Process.Pid))
		_, state, ok := strings.Cut(string(stat), ") ")
		return err == nil && ok && state[0] == 'T'
	})
}

// resume lets a stopped node go on.
func (n *node) resume() {
	n.w.t.Helper()
	n.p.signal(syscall.SIGCONT)
}

// onceClient makes a connection for each request and waits for a while.
var onceClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
