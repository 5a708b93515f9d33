//go:build unix

package main_test

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/dialback/dialback/internal/proctest"
)

// outcome is what a finished command left.
type outcome struct {
	code   int
	stdout string
	stderr string
}

// run runs dialback to its end, with input as its whole standard input.
func run(t *testing.T, env []string, input string, args ...string) outcome {
	t.Helper()
	p := proctest.Dialback(t, env, args...)
	_, err := io.WriteString(p.Stdin, input)
	if cerr := p.Stdin.Close(); err == nil {
		err = cerr
	}
	code := p.Exit()
	if err != nil && code == 0 && !errors.Is(err, os.ErrClosed) {
		t.Errorf("%q ended with 0 and did not read its input: %v", args, err)
	}
	return outcome{code, p.Stdout.String(), p.Stderr.String()}
}

// serveRelay runs dialback serve on a free port and returns its URL.
func serveRelay(t *testing.T, args ...string) (*proctest.Process, string) {
	t.Helper()
	p := proctest.Dialback(t, nil, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	url, ok := strings.CutPrefix(p.Line(), "listening on ")
	if !ok {
		t.Fatalf("serve printed %q, want its address", p.Stdout)
	}
	return p, url
}

// runHost runs dialback host and waits until it is online.
func runHost(t *testing.T, relay, id string, args ...string) *proctest.Process {
	t.Helper()
	p := proctest.Dialback(t, nil, append([]string{"host", "--relay", relay, "--id", id}, args...)...)
	if l := p.Line(); !strings.HasPrefix(l, "online: "+id+" ") {
		t.Fatalf("host printed %q, want one line that says that it is online", l)
	}
	return p
}
