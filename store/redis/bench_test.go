package redis_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dialback/dialback/internal/redistest"
	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/redis"
	"github.com/dialback/dialback/store/storetest"
)

func BenchmarkStore(b *testing.B) {
	server := redistest.Start(b)
	storetest.RunBenchmarks(b, func(b *testing.B) store.Store {
		return redis.New(server.Client(b), &redis.Options{Prefix: freshPrefix(), Timeout: patient})
	})
}

// BenchmarkPingRound pings 100,000 hosts, as the nodes of a full fleet do every
// 30 seconds. Beside the time it tells what a round costs the server, and how
// long the PINGs of another client took meanwhile.
func BenchmarkPingRound(b *testing.B) {
	const hosts = 100_000
	server := redistest.Start(b)
	s := redis.New(server.Client(b), &redis.Options{Timeout: patient})
	as := make([]store.Attachment, hosts)
	for i := range as {
		// As large as those of real relays: UUIDs and a short node ID.
		uuid := fmt.Sprintf("%08x-0000-4000-8000-%012x", i, i)
		as[i] = store.Attachment{
			ID: uuid, HostID: uuid, NodeID: "relay-1", Incarnation: uuid, Role: store.RoleHost,
			Proto: 3, Instance: uuid, Seq: 1, ConnectedAt: time.Now(), Generation: uint64(time.Now().UnixMicro()),
		}
	}
	round := func() {
		if _, err := s.Ping(b.Context(), as, 5*time.Minute); err != nil {
			b.Fatal(err)
		}
	}
	start := time.Now()
	round() // all rows are lost: the first round writes them
	b.Logf("writing %d rows: %v", hosts, time.Since(start))
	b.Logf("%d bytes per host", usedMemory(b, server)/hosts)

	idle := watchLatency(b, server)
	time.Sleep(time.Second)
	b.Logf("PINGs of another client without: %v", idle())
	before := usedCPU(b, server)
	busy := watchLatency(b, server)
	for b.Loop() {
		round()
	}
	b.Logf("PINGs of another client meanwhile: %v", busy())
	b.ReportMetric((usedCPU(b, server)-before)*1000/float64(b.N), "ms-CPU/op")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/hosts, "ns/host")
}

// latencies is how long calls took, in no order.
type latencies []time.Duration

func (l latencies) String() string {
	if len(l) == 0 {
		return "none"
	}
	slices.Sort(l)
	return fmt.Sprintf("median %v, 99 %% within %v, %v at most", l[len(l)/2], l[len(l)*99/100], l[len(l)-1])
}

// watchLatency sends PING after PING until the function that it returns is
// called.
func watchLatency(b *testing.B, server *redistest.Server) func() latencies {
	ctx, cancel := context.WithCancel(b.Context())
	c := server.Client(b)
	watched := make(chan latencies)
	go func() {
		var l latencies
		for ctx.Err() == nil {
			start := time.Now()
			if c.Ping(ctx).Err() == nil {
				l = append(l, time.Since(start))
			}
		}
		watched <- l
	}()
	return func() latencies {
		cancel()
		return <-watched
	}
}

// usedCPU returns the seconds that the server has spent, its own and the
// system's.
func usedCPU(b *testing.B, server *redistest.Server) float64 {
	return info(b, server, "cpu", "used_cpu_user") + info(b, server, "cpu", "used_cpu_sys")
}

func usedMemory(b *testing.B, server *redistest.Server) int {
	return int(info(b, server, "memory", "used_memory"))
}

func info(b *testing.B, server *redistest.Server, section, name string) float64 {
	b.Helper()
	text, err := server.Client(b).Info(b.Context(), section).Result()
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(text, name+":")
	value, _, _ := strings.Cut(rest, "\r\n")
	n, err := strconv.ParseFloat(value, 64)
	if err != nil {
		b.Fatalf("%s = %q: %v", name, value, err)
	}
	return n
}
