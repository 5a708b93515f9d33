//go:build linux

package clustertest

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/dialback/dialback/internal/proctest"
	"github.com/dialback/dialback/internal/redistest"
)

// dialback serve finds its Redis by Sentinels, as the README says, and goes on
// with the replica when the master is gone: no host leaves because of it.
func TestServe_RedisWithSentinels(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t)
	network := proctest.Network()
	key := proctest.WriteFile(t, filepath.Join(t.TempDir(), "key"), "a key for the nodes of a test\n")
	var nodes []*proctest.Node
	var hosts []*scripted
	for i := range 2 {
		addr := fmt.Sprint(network, i+1, ":", nodesPort)
		n := proctest.StartNode(t, proctest.NodeConfig{
			ID: fmt.Sprint("node", i+1), Addr: addr, Store: r.URL(), Advertise: "http://" + addr, KeyFile: key,
		})
		n.AwaitUp()
		h := connect(t, n.URL, "at-"+n.ID, script{})
		h.serve(n.URL, h.id)
		nodes, hosts = append(nodes, n), append(hosts, h)
	}
	wantServed := func(why string) {
		t.Helper()
		for _, n := range nodes {
			for _, h := range hosts {
				get(n.URL, h.id, "/").want(t, why+": "+h.id+" through "+n.ID, 200, h.id+" /")
			}
		}
	}
	wantServed("before")
	r.Sync(t)
	r.Master.Stop()
	proctest.Within(t, proctest.Patience, "the Sentinel promotes the replica", func() bool {
		now, _ := r.Current(t)
		return now == r.Replica
	})
	for _, n := range nodes {
		for _, h := range hosts {
			proctest.Within(t, 10*time.Second, h.id+" is served through "+n.ID, func() bool { return get(n.URL, h.id, "/").status == 200 })
		}
	}
	for _, h := range hosts {
		if !h.isOpen() {
			t.Errorf("the socket of %s ended: %v", h.id, h.err)
		}
	}
	wantServed("afterwards")
}
