//go:build linux

// Package clustertest tests several real relay nodes: processes of dialback
// serve on a real Redis, behind a real HAProxy or nginx, with real hosts.
//
// A world is one Redis, its nodes and their network. Each world has a network
// of loopback addresses of its own, so that nodes have the same addresses after
// a restart and worlds run side by side. Between nodes and Redis, and between
// nodes, are gates: they hold, lose and cut what passes. The configurations of
// the load balancers are those of the directory docs.
package clustertest

import (
	"os"
	"testing"
	"time"

	"github.com/dialback/dialback/internal/proctest"
)

func TestMain(m *testing.M) { os.Exit(proctest.RunTests(m)) }

// busy is what a machine with too much to do may add to a time that is promised.
const busy = time.Second
