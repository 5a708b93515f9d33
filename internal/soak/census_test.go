//go:build linux

package soak

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dialback/dialback/internal/proctest"
)

// settleTime bounds the wait for rest: idle streams live for poolIdle, rows of
// sockets are written a second later.
const settleTime = 90 * time.Second

// rows are the keys of the Store by kind.
type rows struct {
	Hosts   int // what is known of hosts, attached or not
	Live    int // hosts that are attached
	Sockets int // hosts with records of sockets of clients
	Nodes   int
	Other   int
}

// countRows reads the names of all keys: a Store never does that.
func countRows(ctx context.Context, client goredis.UniversalClient) (r rows, err error) {
	it := client.Scan(ctx, 0, "", 10_000).Iterator()
	for it.Next(ctx) {
		switch key := it.Val(); {
		case strings.Contains(key, "node"):
			r.Nodes++
		case strings.HasSuffix(key, "}:live"):
			r.Live++
		case strings.HasSuffix(key, "}:sockets"):
			r.Sockets++
		case strings.HasSuffix(key, "}:ends"): // beside each :sockets
		case strings.HasSuffix(key, "}"):
			r.Hosts++
		default:
			r.Other++
		}
	}
	return r, it.Err()
}

// census is all that may leak, at one moment.
type census struct {
	usage
	rows
	at   time.Duration // since the beginning
	data int64         // data sockets that hosts have open
}

// world is what a soak consists of.
type world struct {
	t     *testing.T
	begun time.Time
	redis *goredis.Client
	relay *relayProcess
	fleet *fleet
	// stalls are those of the test's process; at the end, of the relay's too.
	stalls *proctest.Stalls
}

func (w *world) census() census {
	w.t.Helper()
	r, err := countRows(w.t.Context(), w.redis)
	if err != nil {
		w.t.Fatal(err)
	}
	return census{usage: w.relay.usage(), rows: r, at: time.Since(w.begun), data: w.fleet.data.Load()}
}

// settle waits until nothing goes on and nothing changes any more.
func (w *world) settle(hosts int) census {
	w.t.Helper()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var last census
	for same, end := 0, time.Now().Add(settleTime); ; <-tick.C {
		c := w.census()
		s := c.Stats
		rest := s.Hosts == hosts && s.Streams == 0 && s.PendingDials == 0 && c.data == 0 && c.Sockets == 0 && c.Live == hosts
		if rest && c.Goroutines == last.Goroutines && c.Files == last.Files {
			if same++; same == 3 {
				return c
			}
		} else {
			same = 0
		}
		if last = c; time.Now().After(end) {
			w.t.Fatalf("not at rest after %v: %d hosts, %d streams, %d pending dials, %d data sockets, rows %+v, %d goroutines, %d files",
				settleTime, s.Hosts, s.Streams, s.PendingDials, c.data, c.rows, c.Goroutines, c.Files)
		}
	}
}

// margin is by how much a figure may be larger than before, at rest both times.
type margin struct {
	name   string
	of     func(census) float64
	factor float64
	plus   float64
	why    string
}

// margins are narrow: half an hour is some 180,000 control sockets and 90,000
// calls, and a goroutine that is kept of one in ten thousand of them shows.
var margins = []margin{
	{"goroutines", func(c census) float64 { return float64(c.Goroutines) }, 1, 4,
		"connections of the Redis client come and go"},
	{"descriptors", func(c census) float64 { return float64(c.Files) }, 1, 20,
		"the Redis client keeps up to ten connections for each CPU"},
	{"heap", func(c census) float64 { return float64(c.Heap) }, 1.03, 1 << 20,
		"maps do not shrink, and what the runtime keeps for itself varies"},
	{"rows of hosts", func(c census) float64 { return float64(c.rows.Hosts) }, 1, 0, "the same hosts come again"},
	{"rows of attached hosts", func(c census) float64 { return float64(c.Live) }, 1, 0, "one for each host"},
	{"rows of sockets", func(c census) float64 { return float64(c.Sockets) }, 1, 0, "there is no stream"},
	{"other rows", func(c census) float64 { return float64(c.Nodes + c.Other) }, 1, 0, "one node"},
}

// compare checks that nothing has grown.
func (w *world) compare(before, after census) {
	w.t.Helper()
	for _, m := range margins {
		b, a := m.of(before), m.of(after)
		if limit := b*m.factor + m.plus; a > limit {
			w.t.Errorf("%s have grown from %.0f to %.0f, want %.0f at most (%s)", m.name, b, a, limit, m.why)
		}
	}
}

func (c census) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, heap %.1f MiB, stacks %.1f MiB, RSS %.1f MiB, rows %+v",
		c.Goroutines, c.Files, mib(c.Heap), mib(c.Stacks), mib(c.RSS), c.rows)
}

func mib(n uint64) float64 { return float64(n) / (1 << 20) }
