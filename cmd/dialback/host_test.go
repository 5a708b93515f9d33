//go:build unix

package main_test

import (
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dialback/dialback/internal/proctest"
)

// A host prints one line when it is online and one for each change, and logs
// nothing unless it is asked to.
func TestHost_OneLinePerChange(t *testing.T) {
	t.Parallel()
	first, relay := serveRelay(t)
	edge := newEdge(t, relay)
	host := runHost(t, edge.url, "h", "--to", "tcp://"+proctest.Serve(t, countInput))

	first.Kill()
	last := host.Line()
	if !strings.HasPrefix(last, "offline: ") {
		t.Fatalf("host printed %q when its relay died, want offline and why", last)
	}
	_, relay = serveRelay(t)
	edge.target.Store(&relay)
	for {
		l := host.Line()
		if l == last {
			t.Errorf("host printed %q twice in a row: that is no change", l)
		}
		if last = l; strings.HasPrefix(l, "online: h at node ") {
			break
		}
		if !strings.HasPrefix(l, "offline: ") {
			t.Errorf("host printed %q between offline and online", l)
		}
	}
	if got := run(t, nil, "hello", "connect", "--relay", relay, "--id", "h"); got.stdout != "read: hello" {
		t.Errorf("connect after the host is online again: %+v, want an answer", got)
	}
	host.Terminate()
	if s := host.Stderr.String(); s != "" {
		t.Errorf("stderr %q, want nothing by default", s)
	}
	if l := host.Line(); l != "offline: agent stopping" {
		t.Errorf("host printed %q at its end, want that it is offline", l)
	}
}

// A slash at the end of a URL means the same as none.
func TestHost_TargetWithASlash(t *testing.T) {
	t.Parallel()
	_, relay := serveRelay(t)
	runHost(t, relay+"/", "h", "--to", "tcp://"+proctest.Serve(t, countInput)+"/")
	if got := run(t, nil, "hello", "connect", "--relay", relay+"/", "--id", "h"); got.stdout != "read: hello" {
		t.Errorf("connect: %+v, want an answer", got)
	}
}

// The successor of a killed process is served at once (faults.md, 9).
func TestHost_KilledAndStartedAgain(t *testing.T) {
	t.Parallel()
	_, relay := serveRelay(t)
	addr := proctest.Serve(t, countInput)
	host := runHost(t, relay, "h", "--to", "tcp://"+addr)
	for range 3 {
		host.Kill()
		host = runHost(t, relay, "h", "--to", "tcp://"+addr)
		if got := run(t, nil, "hello", "connect", "--relay", relay, "--id", "h"); got != (outcome{0, "read: hello", ""}) {
			t.Errorf("connect after kill -9 and a new start: %+v, want an answer", got)
		}
	}
}

// Of two processes with one id, one says so and stays away; both are not
// replaced for ever (faults.md, 10).
func TestHost_TwoWithOneID(t *testing.T) {
	t.Parallel()
	_, relay := serveRelay(t)
	addr := proctest.Serve(t, countInput)
	a := runHost(t, relay, "h", "--to", "tcp://"+addr)
	b := runHost(t, relay, "h", "--to", "tcp://"+addr)
	told := make(chan string, 2)
	for _, p := range []*proctest.Process{a, b} {
		go func() {
			for l := range p.Stdout.Lines() {
				if strings.HasPrefix(l, "replaced: another process uses the id h") {
					told <- l
					return
				}
			}
		}()
	}
	<-told
	if got := run(t, nil, "hello", "connect", "--relay", relay, "--id", "h"); got.stdout != "read: hello" {
		t.Errorf("connect after the fight: %+v, want an answer of the host that stayed", got)
	}
}

// edge is what stands in front of relays: its address stays when they change.
type edge struct {
	url    string
	target atomic.Pointer[string] // URL of the relay
}

func newEdge(t *testing.T, relay string) *edge {
	t.Helper()
	e := &edge{}
	e.target.Store(&relay)
	e.url = "http://" + proctest.Serve(t, e.forward)
	return e
}

func (e *edge) forward(c *net.TCPConn) {
	up, err := net.Dial("tcp", strings.TrimPrefix(*e.target.Load(), "http://"))
	if err != nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(up, c)
		up.Close()
	}()
	_, _ = io.Copy(c, up)
	c.Close()
	<-done
}
