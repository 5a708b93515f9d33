//go:build linux

package clustertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/internal/proctest"
)

// All three nodes are restarted, one after the other, under steady calls behind
// a load balancer and at each node itself, and with an SSH transfer during each
// restart (fault 38). No call fails and none waits for long; kept WebSockets and
// the transfer, whose ends are on nodes that stay, do not notice. What is kept
// at a node ends with it, so nothing is kept there when it goes.
func TestRollingRestart(t *testing.T) {
	for name, startBalancer := range balancers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 3)
			rollingRestart(t, w, startBalancer(t, w.net, hinted), proctest.StartSSHD(t))
		})
	}
}

// rollingRestart restarts the nodes of a world under load. Without ssh nothing
// is kept during a restart: without the ticket's hint, what two nodes keep may
// pass through the third.
func rollingRestart(t *testing.T, w *world, b balancer, ssh *proctest.SSHD) {
	t.Helper()
	more := make(map[string]agent.Handler)
	if ssh != nil {
		more["ssh"] = agent.ForwardTCP(ssh.Addr)
	}
	var hosts []*host
	for i := range 6 {
		hosts = append(hosts, startHost(t, b.address(), fmt.Sprint("h", i), more))
	}
	awaitOnline(t, hosts...)

	behind := startLoad(t, "behind the balancer", b.address(), hosts)
	for i, n := range w.nodes {
		restart(t, w, b, n, hosts, ssh, w.nodes[(i+1)%3])
	}
	behind.stop()

	for _, h := range hosts {
		// Once for the start; no host moves without a reason.
		if online, _ := h.counts(); online > 1+len(w.nodes) {
			t.Errorf("%s was online %d times in the restarts of %d nodes", h.id, online, len(w.nodes))
		}
	}
	for _, n := range w.nodes {
		for _, h := range hosts {
			get(n.URL, h.id, "/").want(t, "afterwards", 200, h.id+" /")
		}
	}
}

// restart restarts one node, with load at the others and, if ssh is given, kept
// WebSockets at them and a transfer through one of them.
func restart(t *testing.T, w *world, b balancer, n *node, hosts []*host, ssh *proctest.SSHD, other *node) {
	t.Helper()
	during := fmt.Sprintf(" during the restart of %s", n.ID)
	var staying []*load
	for _, s := range w.nodes {
		if s == n {
			continue
		}
		l := startLoad(t, "at "+s.ID+during, s.URL, hosts)
		if ssh != nil {
			l.keep()
		}
		staying = append(staying, l)
	}
	var x *transfer
	if ssh != nil {
		// A host whose control socket goes: that of a stream is not needed for it.
		host := hosts[0]
		if there := on(n.ID, hosts); len(there) > 0 {
			host = there[0]
		}
		x = startTransfer(t, ssh, "ssh"+during, other.URL, host.id)
	}

	begun := time.Now()
	b.takeOut(n.ID)
	n.P.Terminate()
	t.Logf("%s has drained within %v", n.ID, time.Since(begun).Round(time.Millisecond))
	proctest.Within(t, proctest.Patience, "all hosts have left "+n.ID, func() bool { return len(on(n.ID, hosts)) == 0 })
	n.Start()
	n.AwaitUp()
	b.putIn(n.ID)

	if x != nil {
		x.end()
	}
	for _, l := range staying {
		l.stop()
	}
}
