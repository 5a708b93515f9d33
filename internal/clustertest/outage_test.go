//go:build linux

package clustertest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dialback/dialback/internal/proctest"
	"github.com/dialback/dialback/internal/redistest"
)

// spread starts n hosts behind a balancer and one of protocol 2 directly at
// each node, and waits until there is one of the former at each node.
func spread(t *testing.T, w *world, balancer string, n int) (hosts []*host, v2 []*scripted) {
	t.Helper()
	for i := range n {
		hosts = append(hosts, startHost(t, balancer, fmt.Sprint("h", i), nil))
	}
	awaitOnline(t, hosts...)
	for _, n := range w.nodes {
		if len(on(n.ID, hosts)) == 0 {
			t.Fatalf("no host is at %s: the test would test less than it says", n.ID)
		}
		h := connect(t, n.URL, "v2-"+n.ID, script{})
		h.serve(balancer, h.id)
		v2 = append(v2, h)
	}
	return hosts, v2
}

// outageTime is how long Redis is away. That hosts stay for much longer is a
// test of package relay, where time is free.
const outageTime = 12 * time.Second

// Redis is away, once silent and once refusing, and comes back, once with
// everything and once empty. No host leaves because of it, hosts are served by
// the nodes that hold them, a client elsewhere gets its answer within a second,
// and all is well soon after (fault 37).
func TestRedisAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	b := startHAProxy(t, w.net, hinted)
	hosts, v2 := spread(t, w, b.address(), 6)
	wantAllServed(t, w, hosts, v2, "before")
	v2Pongs := make(map[string]int)

	outage := func(why string, begin, end func()) {
		connects := make(map[string]uint64)
		for _, h := range hosts {
			connects[h.id] = h.agent.Stats().Connects
		}
		for _, h := range v2 {
			v2Pongs[h.id] = h.ponged()
		}
		begin()
		gone := time.Now()
		pause := time.NewTicker(200 * time.Millisecond)
		defer pause.Stop()
		for time.Since(gone) < outageTime {
			wantServedAtHome(t, w, hosts, v2, why, gone)
			<-pause.C
		}
		end()
		back := time.Now()
		for _, n := range w.nodes {
			proctest.Within(t, 10*time.Second, n.ID+" has its Store again", func() bool { return !n.IsDegraded() })
		}
		for _, n := range w.nodes {
			for _, h := range hosts {
				proctest.Within(t, 10*time.Second, h.id+" is served everywhere", func() bool { return get(n.URL, h.id, "/").status == 200 })
			}
			for _, h := range v2 {
				proctest.Within(t, 10*time.Second, h.id+" is served everywhere", func() bool { return get(n.URL, h.id, "/").status == 200 })
			}
		}
		if d := time.Since(back); d > 10*time.Second {
			t.Errorf("%s: all was well %v after Redis was back, want 10 s", why, d)
		}
		for _, h := range hosts {
			_, offline := h.counts()
			if n := h.agent.Stats().Connects; n != connects[h.id] || offline > 0 {
				t.Errorf("%s: %s has connected %d times, before %d times, and was offline %d times: no host leaves because of an outage",
					why, h.id, n, connects[h.id], offline)
			}
		}
		for _, h := range v2 {
			if !h.isOpen() {
				t.Errorf("%s: the socket of %s ended with %v: no host leaves because of an outage", why, h.id, h.err)
			}
			if h.ponged() == v2Pongs[h.id] {
				t.Errorf("%s: no ping of %s was answered", why, h.id)
			}
		}
		wantAllServed(t, w, hosts, v2, "after: "+why)
	}

	outage("Redis is silent", func() {
		for _, n := range w.nodes {
			n.store.SetStalled(true)
		}
	}, func() {
		for _, n := range w.nodes {
			n.store.SetStalled(false)
		}
	})
	outage("Redis refuses, and comes back empty", func() {
		w.redis.Stop()
		for _, n := range w.nodes {
			n.store.SetCut(true)
		}
	}, func() {
		w.redis = redistest.Start(t)
		for _, n := range w.nodes {
			n.store.TurnTo(w.redis.Network, w.redis.Addr)
			n.store.SetCut(false)
		}
	})
}

// wantAllServed checks that every host is served through every node.
func wantAllServed(t *testing.T, w *world, hosts []*host, v2 []*scripted, why string) {
	t.Helper()
	for _, n := range w.nodes {
		for _, h := range hosts {
			get(n.URL, h.id, "/").want(t, why+": "+h.id+" through "+n.ID, 200, h.id+" /")
		}
		for _, h := range v2 {
			get(n.URL, h.id, "/").want(t, why+": "+h.id+" through "+n.ID, 200, h.id+" /")
		}
	}
}

// wantServedAtHome checks, while the Store is gone, that each node serves the
// hosts that it holds, and soon says of the others that it cannot find them. For
// a second it may know of them: a stream that is kept open is used for so long
// on the word of the Store.
func wantServedAtHome(t *testing.T, w *world, hosts []*host, v2 []*scripted, why string, gone time.Time) {
	t.Helper()
	var wg sync.WaitGroup
	check := func(id, home string) {
		for _, n := range w.nodes {
			wg.Go(func() {
				kept := time.Since(gone) < time.Second
				switch r := get(n.URL, id, "/"); {
				case n.ID == home:
					r.want(t, why+": "+id+" through "+n.ID+", which holds it", 200, id+" /")
				case r.status != 200 || !kept:
					r.wantCode(t, why+": "+id+" through "+n.ID, 503, "store_unavailable", time.Second+busy)
				}
			})
		}
	}
	for _, h := range hosts {
		check(h.id, h.at())
	}
	for i, h := range v2 {
		h.ping()
		check(h.id, w.nodes[i].ID)
	}
	wg.Wait()
}

// One node alone loses the Store: its hosts move within a minute, and no faster
// than one by one. Those of the others do not notice.
func TestRedisAway_FromOneNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	b := startHAProxy(t, w.net, hinted)
	hosts, v2 := spread(t, w, b.address(), 9)
	wantAllServed(t, w, hosts, v2, "before")
	alone := w.nodes[0]
	moving, staying := on(alone.ID, hosts), append(on("node2", hosts), on("node3", hosts)...)
	connects := make(map[string]uint64)
	for _, h := range hosts {
		connects[h.id] = h.agent.Stats().Connects
	}

	alone.store.SetCut(true)
	cut := time.Now()
	proctest.Within(t, time.Minute, "all hosts have left the node without a Store", func() bool {
		for _, h := range staying {
			for _, n := range w.nodes[1:] {
				get(n.URL, h.id, "/").want(t, "a host of another node", 200, h.id+" /")
			}
		}
		return len(on(alone.ID, hosts)) == 0 && !v2[0].isOpen()
	})
	t.Logf("%d hosts have moved within %v", len(moving), time.Since(cut))
	v2[0].wantClosed("a v2 host of the node without a Store", 1012)
	for _, h := range moving {
		for _, n := range w.nodes[1:] {
			get(n.URL, h.id, "/").want(t, "a host that has moved", 200, h.id+" /")
		}
		// One attempt, and a few more that may have met the node that it left.
		if n := h.agent.Stats().Connects - connects[h.id]; n > 5 {
			t.Errorf("%s has connected %d times to move once: a storm", h.id, n)
		}
	}
	for _, h := range staying {
		if n := h.agent.Stats().Connects; n != connects[h.id] {
			t.Errorf("%s connected again, and its node has the Store", h.id)
		}
	}

	alone.store.SetCut(false)
	proctest.Within(t, 10*time.Second, "the node has its Store again", func() bool { return !alone.IsDegraded() })
	wantAllServed(t, w, hosts, v2[1:], "after")
}
