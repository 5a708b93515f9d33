// Package tooltest finds the programs that some tests run beside our own: sshd,
// a browser, Node.
package tooltest

import (
	"os"
	"os/exec"
	"testing"
)

// ci is the variable that CI sets to 1: nothing may be skipped there.
const ci = "DIALBACK_CI"

// sbin is where system daemons are, which need not be in PATH.
var sbin = []string{"/usr/sbin/", "/usr/local/sbin/", "/sbin/"}

// Need returns the path of the program name, which install gets. Without it the
// test is skipped, and in CI it fails.
func Need(t testing.TB, name, install string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	for i := 0; err != nil && i < len(sbin); i++ {
		path, err = exec.LookPath(sbin[i] + name)
	}
	if err != nil {
		Missing(t, name, install)
	}
	return path
}

// Missing skips the test because what is not installed, and fails it in CI.
func Missing(t testing.TB, what, install string) {
	t.Helper()
	if os.Getenv(ci) == "1" {
		t.Fatalf("%s is not installed (%s), and %s=1 forbids skipping", what, install, ci)
	}
	t.Skipf("skipped: %s is not installed (%s)", what, install)
}
