package bench_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dialback/dialback/internal/redistest"
	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/memory"
	"github.com/dialback/dialback/store/redis"
	"github.com/dialback/dialback/store/storetest"
)

// patient is the timeout of Stores, and of calls between nodes: a stall of a
// machine that is loaded on purpose is no outage, and shows in the figures.
const patient = 30 * time.Second

// BenchmarkStore is the calls that a relay makes most, on each Store.
func BenchmarkStore(b *testing.B) {
	b.Run("memory", func(b *testing.B) {
		storetest.RunBenchmarks(b, func(*testing.B) store.Store { return memory.New() })
	})
	b.Run("redis", func(b *testing.B) {
		server := redistest.Start(b)
		opened := 0
		storetest.RunBenchmarks(b, func(b *testing.B) store.Store {
			opened++
			return redis.New(server.Client(b), &redis.Options{Prefix: fmt.Sprintf("bench%d:", opened), Timeout: patient})
		})
	})
}
