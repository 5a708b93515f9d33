// Package bench_test measures whole paths: a client, a relay, a host and its
// service, each in a process of its own, against the same client on the service
// directly and behind one plain reverse proxy.
//
// It prints ratios, since absolute figures of a shared machine mean nothing:
// x-direct and x-hop are the relay's figure over that of the direct path and of
// the hop, the median of interleaved turns. Where the figure is a rate, more is
// better; where it is a time, less. An answer that fails or is not whole fails
// the benchmark. RESULTS.md keeps what came out.
//
//	go test -run '^$' -bench . ./bench
//	go test -run '^$' -bench Get/c=64 -benchtime 20x ./bench
//
// BenchmarkFar, FarAcross and Switches say what ways and wake-ups a request
// costs, which is no ratio to anything.
//
// With DIALBACK_BENCH_PROFILE=dir relay and agents write CPU profiles there.
package bench_test

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(partEnv); name != "" {
		if err := runPart(name); err != nil {
			fmt.Fprintf(os.Stderr, "bench: part %s: %v\n", name, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	stopShared()
	os.Exit(code)
}
