package bench_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dialback/dialback/internal/redistest"
	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/redis"
)

const (
	roundHosts = 100_000
	roundBatch = 500 // what a relay puts into one call
	roundTTL   = 5 * time.Minute
)

// BenchmarkPingRound100k is what the nodes of a full fleet ask of Redis every
// 30 seconds, as fast as it goes: one Ping of each of 100,000 hosts. Each node
// sends one batch after the other, and all nodes send at the same time.
//
// redis-CPU-s is what Redis spends on one round. What a round does to everybody
// else shows in the PINGs of another client: the longest of a round and the 99th
// percentile, beside idle, the same in two seconds without a round, which is
// what the machine does by itself.
func BenchmarkPingRound100k(b *testing.B) {
	server := redistest.Start(b)
	s := redis.New(server.Client(b), &redis.Options{Timeout: patient})
	as, err := claimHosts(b.Context(), s, roundHosts)
	if err != nil {
		b.Fatal(err)
	}
	for _, nodes := range []int{1, 4} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			idle := watchPings(b, server)
			time.Sleep(2 * time.Second)
			idlePings := idle.stop(b)
			var seconds, cpu, longest, p99 []float64
			for b.Loop() {
				watch, before := watchPings(b, server), usedCPU(b, server)
				began := time.Now()
				if err := pingRound(b.Context(), s, as, nodes); err != nil {
					b.Fatal(err)
				}
				seconds = append(seconds, time.Since(began).Seconds())
				cpu = append(cpu, usedCPU(b, server)-before)
				pings := watch.stop(b)
				longest = append(longest, pings[len(pings)-1])
				p99 = append(p99, pings[len(pings)*99/100])
			}
			b.ReportMetric(0, "ns/op") // with the figures around the round: says nothing
			b.ReportMetric(median(seconds), "s/round")
			b.ReportMetric(median(cpu), "redis-CPU-s/round")
			b.ReportMetric(median(longest), "other-max-ms")
			b.ReportMetric(median(p99), "other-p99-ms")
			b.ReportMetric(idlePings[len(idlePings)-1], "idle-max-ms")
			b.ReportMetric(idlePings[len(idlePings)*99/100], "idle-p99-ms")
		})
	}
}

// claimHosts attaches n hosts, some at once.
func claimHosts(ctx context.Context, s store.Store, n int) ([]store.Attachment, error) {
	as := make([]store.Attachment, n)
	err := inParts(as, 16, func(part []store.Attachment, base int) error {
		for i := range part {
			// As large as those of real relays: UUIDs and a short node ID.
			uuid := fmt.Sprintf("%08x-0000-4000-8000-%012x", base+i, base+i)
			c, err := s.Claim(ctx, store.Attachment{
				ID: uuid, HostID: uuid, NodeID: "relay-1", Incarnation: uuid, Role: store.RoleHost,
				Proto: 3, Instance: uuid, Seq: 1, ConnectedAt: time.Now(),
			}, roundTTL)
			if err != nil {
				return err
			}
			part[i] = c.Current
		}
		return nil
	})
	return as, err
}

// pingRound pings all of as, from several nodes at once.
func pingRound(ctx context.Context, s store.Store, as []store.Attachment, nodes int) error {
	return inParts(as, nodes, func(part []store.Attachment, _ int) error {
		for batch := range slices.Chunk(part, roundBatch) {
			current, err := s.Ping(ctx, batch, roundTTL)
			if err != nil {
				return err
			}
			if i := slices.Index(current, false); i >= 0 {
				return fmt.Errorf("host %s is not current", batch[i].HostID)
			}
		}
		return nil
	})
}

// inParts calls f for n parts of as, each in a goroutine of its own, with the
// index of the part's first element.
func inParts(as []store.Attachment, n int, f func(part []store.Attachment, base int) error) error {
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		from, to := i*len(as)/n, (i+1)*len(as)/n
		wg.Go(func() { errs[i] = f(as[from:to], from) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// pingWatch sends PING after PING to a server, about one per millisecond: that
// costs the server little and meets whatever lasts longer.
type pingWatch struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when run has ended

	// Owned by run until done is closed.
	took []float64 // milliseconds
	err  error
}

// watchPings watches until stop is called, or b ends.
func watchPings(b *testing.B, server *redistest.Server) *pingWatch {
	ctx, cancel := context.WithCancel(b.Context())
	w := &pingWatch{cancel: cancel, done: make(chan struct{})}
	client := server.Client(b)
	go w.run(ctx, func() error { return client.Ping(context.Background()).Err() })
	return w
}

func (w *pingWatch) run(ctx context.Context, ping func() error) {
	defer close(w.done)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for w.err == nil {
		began := time.Now()
		w.err = ping()
		w.took = append(w.took, float64(time.Since(began).Nanoseconds())/1e6)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// stop ends the watch and returns how long the PINGs took in milliseconds, the
// longest one last. There is at least one.
func (w *pingWatch) stop(b *testing.B) []float64 {
	b.Helper()
	w.cancel()
	<-w.done
	if w.err != nil {
		b.Fatalf("PING of another client: %v", w.err)
	}
	slices.Sort(w.took)
	return w.took
}

// usedCPU returns the seconds that the server has spent, its own and the
// system's.
func usedCPU(b *testing.B, server *redistest.Server) float64 {
	b.Helper()
	text, err := server.Client(b).Info(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	total := 0.0
	for _, name := range []string{"used_cpu_user:", "used_cpu_sys:"} {
		_, rest, _ := strings.Cut(text, name)
		value, _, _ := strings.Cut(rest, "\r\n")
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil {
			b.Fatalf("%s%q: %v", name, value, err)
		}
		total += seconds
	}
	return total
}
