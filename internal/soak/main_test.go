//go:build linux

// Package soak keeps a relay with ten thousand hosts busy for half an hour, and
// checks that nothing of it stays: goroutines, descriptors, heap and rows of the
// Store are afterwards what they were before.
//
//	go test -run Soak -timeout 0 ./internal/soak -soak.for=30m -soak.report=$PWD/docs/reports/soak.md
//
// The relay is a process of its own on a real Redis, so its heap is nobody
// else's. Hosts and clients are in the test's process, and speak the wire by
// themselves: ten thousand agents would be too much for the machine. Hosts of
// protocol 2 and of protocol 3 take turns.
package soak

import (
	"flag"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var (
	soakFor    = flag.Duration("soak.for", 0, "how long hosts come and go; zero skips the test")
	soakHosts  = flag.Int("soak.hosts", 10_000, "how many hosts")
	soakChurn  = flag.Float64("soak.churn", 1, "how much of them connects anew each second, in percent")
	soakReport = flag.String("soak.report", "", "a `file` for the report")
)

// relayEnv makes the test's binary the relay: it has the URL of the Store.
const relayEnv = "DIALBACK_SOAK_STORE"

func TestMain(m *testing.M) {
	if url := os.Getenv(relayEnv); url != "" {
		if err := runRelay(url); err != nil {
			fmt.Fprintln(os.Stderr, "soak: relay:", err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// fileLimit raises the limit of descriptors as far as it goes, and returns it.
func fileLimit() (uint64, error) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, err
	}
	l.Cur = l.Max
	return l.Cur, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l)
}

// patience bounds a wait for what must come.
const patience = time.Minute
