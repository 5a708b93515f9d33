//go:build linux

package chaos

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dialback/dialback/internal/proctest"
	"github.com/dialback/dialback/internal/redistest"
)

// world is everything that is broken and used.
type world struct {
	// Immutable after newWorld.
	t        *testing.T
	ledger   *ledger
	posts    posts
	redis    *redistest.Replicated
	nodes    []*node
	balancer *proctest.HAProxy
	sshd     *proctest.SSHD
	members  []*member
	short    bool // there is not much time for each fault

	// For the test's goroutine.
	clients map[*redistest.Server]*goredis.Client
}

// client is a client of one of the servers of Redis.
func (w *world) client(s *redistest.Server) *goredis.Client {
	if w.clients[s] == nil {
		w.clients[s] = s.Client(w.t)
	}
	return w.clients[s]
}

// downAfter is how long the master may be silent before the Sentinel promotes the
// replica.
const downAfter = 2 * time.Second

// node is a relay node behind a gate.
type node struct {
	*proctest.Node
	calls *proctest.Gate // between the other nodes and this one
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, ledger: newLedger(proctest.WatchStalls(t)), posts: posts{runs: make(map[string]int)},
		redis: redistest.StartReplicated(t), sshd: proctest.StartSSHD(t), short: *chaosFor < 3*time.Minute,
		clients: make(map[*redistest.Server]*goredis.Client),
	}
	// A busy machine is no reason to fail over.
	if err := w.client(w.redis.Sentinel).Do(t.Context(), "SENTINEL", "SET", "dialback", "down-after-milliseconds", downAfter.Milliseconds()).Err(); err != nil {
		t.Fatal(err)
	}
	network := proctest.Network()
	key := proctest.WriteFile(t, filepath.Join(t.TempDir(), "key"), "a key for the nodes of a test\n")
	for i := range 3 {
		addr := fmt.Sprint(network, i+1, ":8080")
		n := &node{calls: proctest.NewGate(t, fmt.Sprint(network, 201+i, ":8080"), "tcp", addr)}
		n.Node = proctest.StartNode(t, proctest.NodeConfig{
			ID: fmt.Sprint("node", i+1), Addr: addr, Store: w.redis.URL(), Advertise: "http://" + n.calls.Addr, KeyFile: key,
		})
		w.nodes = append(w.nodes, n)
	}
	for _, n := range w.nodes {
		n.AwaitUp()
	}
	w.balancer = proctest.StartHAProxy(t, network, true)
	for i := range 3 {
		w.members = append(w.members, &member{w: w, id: fmt.Sprint("agent", i+1)})
	}
	for i := range 2 {
		w.members = append(w.members, &member{w: w, id: fmt.Sprint("v2-", i+1), v2: true})
	}
	w.members = append(w.members, &member{w: w, id: "process1", proc: true})
	for _, m := range w.members {
		m.start()
	}
	for _, m := range w.members {
		w.awaitConfirmed(m, m.instances)
	}
	return w
}

// restart starts a node's process again, which has ended.
func (w *world) restart(n *node) {
	w.t.Helper()
	w.keepLog(n)
	n.Start()
	n.AwaitUp()
}

// keepLog keeps what the node's process has printed.
func (w *world) keepLog(n *node) {
	if *chaosLogs == "" {
		return
	}
	file := filepath.Join(*chaosLogs, n.ID+"-"+time.Now().Format("150405")+".log")
	if err := os.WriteFile(file, []byte(n.P.Output()), 0o644); err != nil {
		w.t.Error(err)
	}
}

// awaitConfirmed waits until the relay has confirmed that process of a host.
func (w *world) awaitConfirmed(m *member, instance int) {
	w.t.Helper()
	proctest.Within(w.t, proctest.Patience, fmt.Sprint(m, " is confirmed"), func() bool {
		c, ok := m.roll.last()
		return ok && c.instance >= instance
	})
}

// unreached is a host that a way does not lead to.
type unreached struct {
	m   *member
	way string // URL
	why string
}

// probe asks each host for a little through the balancer and through each node
// itself, all at once, and returns what has failed.
func (w *world) probe() []unreached {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 12 * time.Second}
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		miss []unreached
	)
	ways := []string{w.balancer.URL}
	for _, n := range w.nodes {
		ways = append(ways, n.URL)
	}
	for _, m := range w.members {
		for _, way := range ways {
			wg.Go(func() {
				if why := get(client, way+"/hosts/"+m.id+"/get?n=1"); why != "" {
					mu.Lock()
					miss = append(miss, unreached{m, way, why})
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	return miss
}

func get(client *http.Client, url string) (why string) {
	resp, err := client.Get(url)
	if err != nil {
		return reasonOf(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("Dialback-Error"))
	}
	return ""
}

// awaitCalm waits after a fault until every host is reached in every way, and
// all nodes and the balancer are at peace. A host that takes longer than the
// fault's bound violates a rule.
func (w *world) awaitCalm(f *fault) {
	w.t.Helper()
	bound := f.kind.back + busy
	for reached := false; ; {
		miss := w.probe()
		if len(miss) == 0 && !reached {
			reached, f.back = true, time.Since(f.ended)
		}
		if wait := time.Until(f.ended.Add(f.kind.settle)); len(miss) == 0 && wait > 0 {
			time.Sleep(wait)
			continue
		}
		if len(miss) == 0 {
			break
		}
		reached = false
		if away := time.Since(f.ended); away > bound {
			for _, u := range miss {
				w.ledger.violate(ruleAway, "%v through %s, %v after the end of %v: %s", u.m, u.way, away.Round(time.Millisecond), f, u.why)
			}
			bound = proctest.Patience
		}
		if time.Since(f.ended) > proctest.Patience {
			w.t.Fatalf("%d hosts are not reached a minute after %v: %v", len(miss), f, miss)
		}
	}
	for _, n := range w.nodes {
		proctest.Within(w.t, proctest.Patience, n.ID+" has its Store", func() bool { return n.Health() == http.StatusOK && !n.IsDegraded() })
		w.balancer.AwaitUp(n.ID)
	}
	f.calm = time.Now()
}

// awaitReplica waits until the Sentinel knows a replica that is in step: without
// one it cannot fail over.
func (w *world) awaitReplica() {
	w.t.Helper()
	s := w.client(w.redis.Sentinel)
	proctest.Within(w.t, proctest.Patience, "the Sentinel knows a replica that is in step", func() bool {
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		replicas, err := s.Do(ctx, "SENTINEL", "REPLICAS", "dialback").Slice()
		return err == nil && slices.ContainsFunc(replicas, func(r any) bool {
			text := fmt.Sprint(r)
			return strings.Contains(text, "master-link-status:ok") && !strings.Contains(text, "s_down") && !strings.Contains(text, "disconnected")
		})
	})
}
