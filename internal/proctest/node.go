package proctest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Client makes a connection for each request, and waits 20 seconds at most.
var Client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}

// NodeConfig is what a Node is started with.
type NodeConfig struct {
	ID        string
	Addr      string // where it listens
	Store     string // its --store
	Advertise string // the URL at which other nodes reach it
	KeyFile   string // with the key that all nodes share
}

// Node is one process of dialback serve. It may be ended and started again, and
// has the same ID and address then.
type Node struct {
	NodeConfig
	URL string   // of its mount point
	P   *Process // of its present life; for the test's goroutine

	tb testing.TB
}

// StartNode starts a node. It does not wait until the node serves.
func StartNode(tb testing.TB, cfg NodeConfig) *Node {
	tb.Helper()
	n := &Node{NodeConfig: cfg, URL: "http://" + cfg.Addr, tb: tb}
	n.Start()
	return n
}

// Start starts the node's process again, whose life before is over.
func (n *Node) Start() {
	n.tb.Helper()
	n.P = Dialback(n.tb, nil, "serve", "--listen", n.Addr, "--store", n.Store,
		"--node-id", n.ID, "--advertise", n.Advertise, "--node-key-file", n.KeyFile, "--log-level", "info")
}

// AwaitUp waits until the node serves.
func (n *Node) AwaitUp() {
	n.tb.Helper()
	Within(n.tb, Patience, n.ID+" listens", func() bool {
		if n.P.HasEnded() {
			n.tb.Fatalf("%s has ended\n%s", n.ID, n.P.Output())
		}
		return n.Health() == http.StatusOK
	})
}

// Health is the status of the node's /health, or 0 if it does not answer.
func (n *Node) Health() int {
	resp, err := Client.Get(n.URL + "/health")
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// IsDegraded reports whether the node says that it has no Store.
func (n *Node) IsDegraded() bool {
	resp, err := Client.Get(n.URL + "/health")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	var health struct{ Degraded bool }
	return json.NewDecoder(resp.Body).Decode(&health) == nil && health.Degraded
}

// Stop is SIGSTOP: the process stands still and its connections stay open. It
// returns when the process does stand still. Only Linux can tell.
func (n *Node) Stop() {
	n.tb.Helper()
	n.P.Signal(sigStop)
	Within(n.tb, Patience, n.ID+" stands still", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.P.Pid()))
		_, state, ok := strings.Cut(string(stat), ") ")
		return err == nil && ok && state[0] == 'T'
	})
}

// Resume lets a stopped node go on.
func (n *Node) Resume() {
	n.tb.Helper()
	n.P.Signal(sigCont)
}

// sigStop and sigCont are those of Linux; package syscall has none on Windows.
const (
	sigStop = syscall.Signal(0x13)
	sigCont = syscall.Signal(0x12)
)
