package bench_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	leakStreams = 10_000
	leakAtOnce  = 16
	leakSettle  = 20 * time.Second // bound of the wait for the last stream to be cleaned up
)

// TestLeaks_TenThousandShortStreams opens streams and exchanges that end in all
// ways, most of them badly, and checks that nothing of them stays: no
// goroutine, no descriptor, no stream, dial or row.
func TestLeaks_TenThousandShortStreams(t *testing.T) {
	startPoller(t)
	bare := census{goroutines: runtime.NumGoroutine(), files: countFiles()}
	w := newLeakWorld(t)
	// One of each, so that what is made once is there.
	for _, k := range leakKinds {
		for range 4 {
			if err := k.run(w, newLeakRand(0)); err != nil {
				t.Fatalf("%s: %v", k.name, err)
			}
		}
	}
	before, ok := w.settle(func(c census) bool { return c.idle() && w.steady(c) })
	if !ok {
		t.Fatalf("%v after one stream of each kind:\n%s", before, stacks())
	}

	var next atomic.Int64
	var wg sync.WaitGroup
	fails := make(chan error, leakAtOnce)
	for i := range leakAtOnce {
		wg.Go(func() {
			if err := w.work(&next, newLeakRand(uint64(i)+1)); err != nil {
				fails <- err
			}
		})
	}
	wg.Wait()
	close(fails)
	for err := range fails {
		t.Error(err)
	}
	if t.Failed() {
		return
	}

	after, ok := w.settle(func(c census) bool { return c.within(before) })
	if !ok {
		t.Errorf("after %d streams there are %v; before them there were %v\n%s", leakStreams, after, before, stacks())
	}
	w.stop()
	end, ok := w.settle(func(c census) bool { return c.goroutines <= bare.goroutines && c.files <= bare.files })
	if !ok {
		t.Errorf("after Close there are %d goroutines and %d files; before New there were %d and %d\n%s",
			end.goroutines, end.files, bare.goroutines, bare.files, stacks())
	}
}

// newLeakRand is reproducible; what the machine makes of it is not.
func newLeakRand(worker uint64) *rand.Rand { return rand.New(rand.NewPCG(20261129, worker)) }

// work runs streams of random kinds until there were enough.
func (w *leakWorld) work(next *atomic.Int64, rng *rand.Rand) error {
	for next.Add(1) <= leakStreams {
		k := leakKinds[rng.IntN(len(leakKinds))]
		if err := k.run(w, rng); err != nil {
			next.Store(leakStreams) // the others need not go on
			return fmt.Errorf("%s: %w", k.name, err)
		}
	}
	return nil
}

// census is what may leak, at one moment.
type census struct {
	goroutines, files            int
	streams, dials, agentStreams int
	rows, hosts                  int
}

func (c census) String() string {
	return fmt.Sprintf("%d goroutines, %d files, %d streams, %d pending dials, %d streams of the agent, %d rows of sockets and %d of hosts",
		c.goroutines, c.files, c.streams, c.dials, c.agentStreams, c.rows, c.hosts)
}

// idle reports whether nothing goes on.
func (c census) idle() bool {
	return c.streams == 0 && c.dials == 0 && c.agentStreams == 0 && c.rows == 0
}

// within reports whether there is nothing that there was not before.
func (c census) within(b census) bool {
	return c.idle() && c.goroutines <= b.goroutines && c.files <= b.files && c.hosts <= b.hosts
}

func (w *leakWorld) census() census {
	w.client.CloseIdleConnections()
	c := census{goroutines: runtime.NumGoroutine(), files: countFiles(), agentStreams: w.agent.Stats().Streams}
	st := w.relay.Stats()
	c.streams, c.dials = st.Streams, st.PendingDials
	rows := w.store.Stats()
	c.rows, c.hosts = rows.Sockets, rows.Hosts+rows.Tombstones
	return c
}

// settle takes a census until ok is true of it, for leakSettle at most.
func (w *leakWorld) settle(ok func(census) bool) (census, bool) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(leakSettle); ; <-tick.C {
		c := w.census()
		if ok(c) {
			return c, true
		}
		if time.Now().After(end) {
			return c, false
		}
	}
}

// steady reports whether c was the same 25 times in a row.
func (w *leakWorld) steady(c census) bool {
	if c != w.last {
		w.last, w.same = c, 0
	}
	w.same++
	return w.same >= 25
}

// startPoller makes the runtime open the descriptors that it keeps for good.
func startPoller(t *testing.T) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
}

// countFiles is the number of open descriptors, 0 where it cannot be told.
func countFiles() int {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(names)
}

func stacks() string {
	var b bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
	return b.String()
}

// leakContext bounds one stream, far above what it takes.
func leakContext() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.Background(), 20*time.Second, errors.New("a stream took 20s"))
}
