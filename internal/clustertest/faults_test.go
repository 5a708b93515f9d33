//go:build linux

package clustertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/internal/proctest"
	"github.com/dialback/dialback/transport"
)

// lease is how long a node counts as alive that says nothing.
const lease = 15 * time.Second

// A node is killed. Its hosts come back elsewhere; nobody is routed to it; what
// it leaves behind is no ghost, also when a node of its name starts again
// (faults 34 and 35).
func TestNodeKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	b := startHAProxy(t, w.net, hinted)
	hosts, _ := spread(t, w, b.address(), 6)
	killed, client := w.nodes[0], w.nodes[1]
	ghost := connect(t, killed.URL, "ghost", script{})
	ghost.serve(killed.URL, "ghost")
	get(client.URL, "ghost", "/").want(t, "before", 200, "ghost /")
	moving, staying := on(killed.ID, hosts), append(on("node2", hosts), on("node3", hosts)...)

	l := startLoad(t, "hosts of the other nodes", client.URL, staying)
	killed.P.Kill()
	for _, h := range moving {
		took := proctest.Within(t, 10*time.Second, h.id+" is served again", func() bool { return get(client.URL, h.id, "/").status == 200 })
		t.Logf("%s was served again after %v", h.id, took)
	}
	r := get(client.URL, "ghost", "/")
	r.wantCode(t, "a host of the node that is gone", 503, r.code, slowest)
	l.stop()

	killed.Start()
	killed.AwaitUp()
	for _, n := range w.nodes {
		proctest.Within(t, 5*time.Second, "the ghost is offline at "+n.ID, func() bool { return !isOnline(t, n, "ghost") })
		get(n.URL, "ghost", "/").wantCode(t, "a host of the node's earlier life, through "+n.ID, 503, "host_offline", slowest)
	}
	again := connect(t, killed.URL, "ghost", script{})
	again.serve(killed.URL, "back")
	for _, n := range w.nodes {
		get(n.URL, "ghost", "/").want(t, "when it is back, through "+n.ID, 200, "back /")
	}
}

// isOnline asks a node for the presence of a host.
func isOnline(t *testing.T, n *node, host string) bool {
	t.Helper()
	resp, err := proctest.Client.Get(n.URL + "/presence?hostIds=" + host)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var seen struct {
		Hosts map[string]struct{ Online bool }
	}
	if err := json.NewDecoder(resp.Body).Decode(&seen); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("presence: %d, %v", resp.StatusCode, err)
	}
	return seen.Hosts[host].Online
}

// A node stands still and its connections stay open. Calls to it fail soon,
// after its lease its hosts are offline, and those that notice move. When it
// goes on, its sockets are retired.
func TestNodeStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	stopped, client := w.nodes[0], w.nodes[1]
	mute := connect(t, stopped.URL, "mute", script{})
	older := connect(t, stopped.URL, "h", script{})
	older.serve(stopped.URL, "old")
	quick := startHostWith(t, agent.Config{
		RelayURL: stopped.URL, HostID: "quick", HeartbeatInterval: time.Second, SilenceTimeout: 3 * time.Second,
		Transport: onlyTo(stopped, w.nodes[2]),
	}, nil)
	awaitOnline(t, quick)
	get(client.URL, "h", "/").want(t, "before", 200, "old /")
	get(client.URL, "quick", "/").want(t, "before", 200, "quick /")

	stopped.Stop()
	begun := time.Now()
	get(client.URL, "mute", "/").wantCode(t, "a host of a node that stands still", 503, "node_unreachable", time.Second+busy)
	newer := connect(t, w.nodes[2].URL, "h", script{})
	newer.serve(w.nodes[2].URL, "new")
	get(client.URL, "h", "/").want(t, "a host that has moved", 200, "new /")
	proctest.Within(t, 10*time.Second, "an agent has left by its heartbeat", func() bool { return quick.at() == w.nodes[2].ID })
	get(client.URL, "quick", "/").want(t, "an agent that has moved", 200, "quick /")
	proctest.Within(t, lease+10*time.Second-time.Since(begun), "the host is offline", func() bool { return !isOnline(t, client, "mute") })
	get(client.URL, "mute", "/").wantCode(t, "a host of a node without a lease", 503, "host_offline", busy)

	stopped.Resume()
	older.wantClosed("the socket of a node that was replaced meanwhile", transport.CloseReplaced)
	proctest.Within(t, 10*time.Second, "the host that has not moved is served again", func() bool { return isOnline(t, client, "mute") })
	// It gets the dial of the call that failed, too; nobody waits for it any more.
	mute.wantRefused("a dial-back to a caller that was told otherwise", client.URL, mute.nextDial("the late dial"))
	mute.serve(stopped.URL, "mute")
	for _, n := range w.nodes {
		get(n.URL, "mute", "/").want(t, "a host that has not moved, through "+n.ID, 200, "mute /")
		get(n.URL, "h", "/").want(t, "afterwards, through "+n.ID, 200, "new /")
		get(n.URL, "quick", "/").want(t, "afterwards, through "+n.ID, 200, "quick /")
	}
}

// Two nodes cannot reach each other. An open across them fails soon and says
// why; both serve what they hold, and third nodes are served by both.
func TestNodesApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	for _, n := range w.nodes {
		h := connect(t, n.URL, "at-"+n.ID, script{})
		h.serve(n.URL, "of "+n.ID)
	}
	check := func(why string, from, host *node) {
		t.Helper()
		get(from.URL, "at-"+host.ID, "/").want(t, why, 200, "of "+host.ID+" /")
	}
	for _, from := range w.nodes {
		for _, host := range w.nodes {
			check("before", from, host)
		}
	}
	apart := w.nodes[0]
	apart.calls.SetStalled(true)
	for range 3 {
		get(w.nodes[1].URL, "at-node1", "/").wantCode(t, "across", 503, "node_unreachable", time.Second+busy)
		check("its own", apart, apart)
		check("its own", w.nodes[1], w.nodes[1])
		check("of a third", w.nodes[1], w.nodes[2])
	}
	apart.calls.SetStalled(false)
	for _, from := range w.nodes {
		for _, host := range w.nodes {
			proctest.Within(t, 10*time.Second, fmt.Sprintf("%s serves hosts of %s", from.ID, host.ID), func() bool {
				return get(from.URL, "at-"+host.ID, "/").body == "of "+host.ID+" /"
			})
		}
	}
}

// Two processes have one node ID: the newer one is the node. The older one
// closes its hosts and takes no new ones.
func TestOneNodeIDTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	older, other := w.nodes[0], w.nodes[1]
	h := connect(t, older.URL, "h", script{})
	newer := w.addNode(4, older.ID)
	newer.AwaitUp()
	h.wantClosed("a host of the older process", transport.CloseRestart)
	_, err := transport.Dial(t.Context(), older.URL+"/v2/control?hostId=h", &transport.DialOptions{Transport: onceTransport})
	var refused *transport.HandshakeError
	if !errors.As(err, &refused) || refused.Status != http.StatusServiceUnavailable {
		t.Errorf("a host that comes to the older process: %v, want 503", err)
	}
	again := connect(t, newer.URL, "h", script{})
	again.serve(newer.URL, "new")
	for _, n := range []*node{newer, other} {
		get(n.URL, "h", "/").want(t, "through "+n.ID, 200, "new /")
	}
}

// The network forgets the connections that a node keeps to another for its next
// calls: nothing passes on them and nobody is told, while new ones pass. One call
// may take the rest of NodeTimeout to find that out, and not one for each of
// them.
func TestNodesForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	holder, client := w.nodes[0], w.nodes[1]
	h := connect(t, holder.URL, "h", script{})
	h.serve(client.URL, "served")
	var replies []<-chan reply
	for range 32 {
		replies = append(replies, getAsync(client.URL, "h", "/"))
	}
	for _, r := range replies {
		await(t, r).want(t, "before", 200, "served /")
	}
	n, _, cut := holder.calls.Freeze()
	defer cut()
	if n < 4 {
		t.Fatalf("%d connections are kept: too few to test anything", n)
	}
	if r := get(client.URL, "h", "/"); r.status != 200 {
		r.wantCode(t, "the first call", 503, "node_unreachable", time.Second+busy)
	}
	for range 3 {
		get(client.URL, "h", "/").want(t, "the next ones", 200, "served /")
	}
}
