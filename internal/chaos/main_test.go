//go:build linux

// Package chaos breaks the real thing while it is used, and counts what its
// users see: three processes of dialback serve on a real Redis with a replica
// and a Sentinel, behind a real HAProxy, with agents, hosts of protocol 2 and a
// process of dialback host, each behind a proxy that freezes and cuts, and with
// calls, WebSockets, byte streams and ssh through all of it.
//
//	go test -run Chaos -timeout 0 ./internal/chaos -chaos.for=10m -chaos.report=$PWD/docs/reports/chaos.md
//
// One fault follows another, each with a time of calm after it, in an order that
// comes from a seed. What may fail during a fault, for which reasons and how
// long, is in its row of the table kinds; whatever else fails, fails the test. At
// the end all hosts and clients leave, and nothing of them may be left.
package chaos

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/dialback/dialback/internal/proctest"
)

var (
	chaosFor    = flag.Duration("chaos.for", 0, "how long faults are made; zero skips the test")
	chaosSeed   = flag.Uint64("chaos.seed", 0, "the `seed` of the faults; zero means a new one")
	chaosReport = flag.String("chaos.report", "", "a `file` for the report")
	chaosLogs   = flag.String("chaos.logs", "", "a `directory` for what the nodes print")
	chaosOnly   = flag.String("chaos.only", "", "the `name` of the only fault to make")
)

func TestMain(m *testing.M) { os.Exit(proctest.RunTests(m)) }

// busy is what a machine with too much to do may add to a time that is promised.
const busy = 2 * time.Second

// The times of hosts are shorter than by default, so that one minute has room
// for several faults. The ratios are those of the defaults.
const (
	heartbeat = 5 * time.Second
	silence   = 12 * time.Second // then a host leaves
	backoff   = 5 * time.Second  // the longest delay of a reconnect, by default
)
