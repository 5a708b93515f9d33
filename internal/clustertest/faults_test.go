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
	ghost := connect(t, killed.url, "ghost", script{})
	ghost.serve(killed.url, "ghost")
	get(client.url, "ghost", "/").want(t, "before", 200, "ghost /")
	moving, staying := on(killed.id, hosts), append(on("node2", hosts), on("node3", hosts)...)

	l := startLoad(t, "hosts of the other nodes", client.url, staying)
	killed.p.kill()
	for _, h := range moving {
		took := within(t, 10*time.Second, h.id+" is served again", func() bool { return get(client.url, h.id, "/").status == 200 })
		t.Logf("%s was served again after %v", h.id, took)
	}
	r := get(client.url, "ghost", "/")
	r.wantCode(t, "a host of the node that is gone", 503, r.code, slowest)
	l.stop()

	killed.start()
	killed.awaitUp()
	for _, n := range w.nodes {
		within(t, 5*time.Second, "the ghost is offline at "+n.id, func() bool { return !isOnline(t, n, "ghost") })
		get(n.url, "ghost", "/").wantCode(t, "a host of the node's earlier life, through "+n.id, 503, "host_offline", slowest)
	}
	again := connect(t, killed.url, "ghost", script{})
	again.serve(killed.url, "back")
	for _, n := range w.nodes {
		get(n.url, "ghost", "/").want(t, "when it is back, through "+n.id, 200, "back /")
	}
}

// isOnline asks a node for the presence of a host.
func isOnline(t *testing.T, n *node, host string) bool {
	t.Helper()
	resp, err := onceClient.Get(n.url + "/presence?hostIds=" + host)
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
	mute := connect(t, stopped.url, "mute", script{})
	older := connect(t, stopped.url, "h", script{})
	older.serve(stopped.url, "old")
	quick := startHostWith(t, agent.Config{
		RelayURL: stopped.url, HostID: "quick", HeartbeatInterval: time.Second, SilenceTimeout: 3 * time.Second,
		Transport: onlyTo(stopped, w.nodes[2]),
	}, nil)
	awaitOnline(t, quick)
	get(client.url, "h", "/").want(t, "before", 200, "old /")
	get(client.url, "quick", "/").want(t, "before", 200, "quick /")

	stopped.stop()
	begun := time.Now()
	get(client.url, "mute", "/").wantCode(t, "a host of a node that stands still", 503, "node_unreachable", time.Second+busy)
	newer := connect(t, w.nodes[2].url, "h", script{})
	newer.serve(w.nodes[2].url, "new")
	get(client.url, "h", "/").want(t, "a host that has moved", 200, "new /")
	within(t, 10*time.Second, "an agent has left by its heartbeat", func() bool { return quick.at() == w.nodes[2].id })
	get(client.url, "quick", "/").want(t, "an agent that has moved", 200, "quick /")
	within(t, lease+10*time.Second-time.Since(begun), "the host is offline", func() bool { return !isOnline(t, client, "mute") })
	get(client.url, "mute", "/").wantCode(t, "a host of a node without a lease", 503, "host_offline", busy)

	stopped.resume()
	older.wantClosed("the socket of a node that was replaced meanwhile", transport.CloseReplaced)
	within(t, 10*time.Second, "the host that has not moved is served again", func() bool { return isOnline(t, client, "mute") })
	// It gets the dial of the call that failed, too; nobody waits for it any more.
	mute.wantRefused("a dial-back to a caller that was told otherwise", client.url, mute.nextDial("the late dial"))
	mute.serve(stopped.url, "mute")
	for _, n := range w.nodes {
		get(n.url, "mute", "/").want(t, "a host that has not moved, through "+n.id, 200, "mute /")
		get(n.url, "h", "/").want(t, "afterwards, through "+n.id, 200, "new /")
		get(n.url, "quick", "/").want(t, "afterwards, through "+n.id, 200, "quick /")
	}
}

// Two nodes cannot reach each other. An open across them fails soon and says
// why; both serve what they hold, and third nodes are served by both.
func TestNodesApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	for _, n := range w.nodes {
		h := connect(t, n.url, "at-"+n.id, script{})
		h.serve(n.url, "of "+n.id)
	}
	check := func(why string, from, host *node) {
		t.Helper()
		get(from.url, "at-"+host.id, "/").want(t, why, 200, "of "+host.id+" /")
	}
	for _, from := range w.nodes {
		for _, host := range w.nodes {
			check("before", from, host)
		}
	}
	apart := w.nodes[0]
	apart.calls.setStalled(true)
	for range 3 {
		get(w.nodes[1].url, "at-node1", "/").wantCode(t, "across", 503, "node_unreachable", time.Second+busy)
		check("its own", apart, apart)
		check("its own", w.nodes[1], w.nodes[1])
		check("of a third", w.nodes[1], w.nodes[2])
	}
	apart.calls.setStalled(false)
	for _, from := range w.nodes {
		for _, host := range w.nodes {
			within(t, 10*time.Second, fmt.Sprintf("%s serves hosts of %s", from.id, host.id), func() bool {
				return get(from.url, "at-"+host.id, "/").body == "of "+host.id+" /"
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
	h := connect(t, older.url, "h", script{})
	newer := w.addNode(4, older.id)
	newer.awaitUp()
	h.wantClosed("a host of the older process", transport.CloseRestart)
	_, err := transport.Dial(t.Context(), older.url+"/v2/control?hostId=h", &transport.DialOptions{Transport: onceTransport})
	var refused *transport.HandshakeError
	if !errors.As(err, &refused) || refused.Status != http.StatusServiceUnavailable {
		t.Errorf("a host that comes to the older process: %v, want 503", err)
	}
	again := connect(t, newer.url, "h", script{})
	again.serve(newer.url, "new")
	for _, n := range []*node{newer, other} {
		get(n.url, "h", "/").want(t, "through "+n.id, 200, "new /")
	}
}
