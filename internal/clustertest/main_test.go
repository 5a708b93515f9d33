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
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// program is the command dialback, built once.
var program string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "clustertest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "dialback")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/dialback/dialback/cmd/dialback").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build of the command: %v\n%s", err, out)
		return 1
	}
	// Only what the tests set may speak to the processes.
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "DIALBACK_") && name != "DIALBACK_CI" {
			os.Unsetenv(name)
		}
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintf(os.Stderr, "goroutines left: %v\n", err)
		return 1
	}
	return code
}
