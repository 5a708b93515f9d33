// Package proctest runs the command dialback and the programs around it, as
// processes of a test: relay nodes, hosts, sshd, HAProxy, and TCP proxies that
// hold, lose and cut what passes.
//
// All of it ends with the test that started it, and what listens does so on
// loopback addresses.
package proctest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Patience is how long a test waits for what must come: it is a bound against
// hanging, not a limit on speed.
const Patience = time.Minute

// Program is the path of the command dialback. RunTests sets it before the
// tests run.
var Program string

// RunTests is for TestMain: it builds the command, runs the tests and looks for
// goroutines that they left. It returns the exit code. Variables of the
// environment that the command would read are gone meanwhile: only what the
// tests set may speak to the processes.
func RunTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "proctest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	Program = filepath.Join(dir, "dialback.exe")
	if out, err := exec.Command("go", "build", "-o", Program, "github.com/dialback/dialback/cmd/dialback").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build of the command: %v\n%s", err, out)
		return 1
	}
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

// Within waits until ok says so, for limit at most, and returns how long it took.
// When it takes longer the test fails, and what says what was waited for.
func Within(tb testing.TB, limit time.Duration, what string, ok func() bool) time.Duration {
	tb.Helper()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(tb.Context(), limit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			tb.Fatalf("%s: not within %v", what, limit)
		case <-tick.C:
		}
	}
	return time.Since(begun)
}

// Network returns the first three bytes of a network of 256 loopback addresses
// that nobody else uses, with a dot at the end. So what is started again has the
// same address, and tests run side by side.
func Network() string { return fmt.Sprintf("127.%d.%d.", 1+rand.IntN(254), rand.IntN(256)) }

// WriteFile writes a file of the test's own and returns its name.
func WriteFile(tb testing.TB, name, text string) string {
	tb.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return name
}
