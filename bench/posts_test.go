package bench_test

import (
	"bytes"
	"flag"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var postsCount = flag.Int("posts.count", 0, "POSTs of TestPosts_FiftyThousand; 0 skips it")

const (
	postsAtOnce   = 8
	postsPatience = time.Minute // bounds one POST, far above what it takes
)

// TestPosts_FiftyThousand sends POSTs of 1 MiB through a relay and an agent that
// forwards, each a process, and checks that every body comes back whole and as
// it was sent. Each POST has a body of its own, so that an answer that is
// another's shows. It prints the rate, and what the resident memory of relay and
// agent has come to, after each tenth.
func TestPosts_FiftyThousand(t *testing.T) {
	if *postsCount <= 0 {
		t.Skip("runs for minutes; -posts.count=50000 runs it")
	}
	g := startForwarding(t)
	p := &posts{path: g.path, bodies: bytes.Repeat(pattern, 3)}
	p.path.client.Timeout = postsPatience
	p.send(t, postsAtOnce) // what is made once is not growth
	before := g.memory(t)
	began, counted := time.Now(), 0
	for tenth := 1; tenth <= 10 && !t.Failed(); tenth++ {
		n := *postsCount*tenth/10 - counted
		start := time.Now()
		p.send(t, n)
		counted += n
		t.Logf("%d POSTs, the last %d at %.1f/s, %s", counted, n, float64(n)/time.Since(start).Seconds(), g.memory(t).since(before))
	}
	t.Logf("%d POSTs of 1 MiB and back, %d at once: %.1f/s", counted, postsAtOnce, float64(counted)/time.Since(began).Seconds())
}

// posts sends POSTs one after the other, several at once.
type posts struct {
	path   *path
	bodies []byte // what bodies are cut from
	next   int    // how many were sent
}

// send sends n more, and ends at the first that fails.
func (p *posts) send(t *testing.T, n int) {
	t.Helper()
	var (
		wg     sync.WaitGroup
		failed atomic.Bool
		next   atomic.Int64
		fails  = make(chan error, postsAtOnce)
	)
	next.Store(int64(p.next))
	p.next += n
	for range postsAtOnce {
		wg.Go(func() {
			buf := make([]byte, postSize)
			for i := next.Add(1); i <= int64(p.next) && !failed.Load(); i = next.Add(1) {
				from := int(i) * 1009 % len(pattern)
				body := p.bodies[from : from+postSize]
				if err := fetch(p.path, http.MethodPost, "/echo", body, body, buf); err != nil {
					failed.Store(true)
					fails <- fmt.Errorf("POST %d: %w", i, err)
				}
			}
		})
	}
	wg.Wait()
	close(fails)
	for err := range fails {
		t.Error(err)
	}
}

// forwarding is the shortest path with all processes: service, relay and an
// agent that forwards.
type forwarding struct {
	relay, agent *part
	path         *path
}

// startForwarding starts the processes. They end with the test.
func startForwarding(tb testing.TB) *forwarding {
	tb.Helper()
	start := func(name string, addrs ...string) *part { return startPartOf(tb, name, addrs...) }
	service := start("service")
	g := &forwarding{relay: start("relay")}
	g.agent = start("agent-forward", g.relay.addrs[0], service.addrs[0], service.addrs[1])
	g.path = newPath("relay", "http://"+g.relay.addrs[0]+"/hosts/"+forwardHost, "")
	tb.Cleanup(g.path.client.CloseIdleConnections)
	return g
}

// residentMemory is that of both processes, in KiB.
type residentMemory struct{ relay, agent float64 }

// memory reads it, where the system tells; elsewhere it is 0.
func (g *forwarding) memory(t *testing.T) (m residentMemory) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return m
	}
	var err error
	if m.relay, err = rss(g.relay.cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if m.agent, err = rss(g.agent.cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	return m
}

// since describes how much more it is than before.
func (m residentMemory) since(before residentMemory) string {
	return fmt.Sprintf("relay %.1f MiB (%+.1f), agent %.1f MiB (%+.1f)",
		m.relay/1024, (m.relay-before.relay)/1024, m.agent/1024, (m.agent-before.agent)/1024)
}
