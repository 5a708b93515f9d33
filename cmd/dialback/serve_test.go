//go:build unix

package main_test

import (
	"bufio"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dialback/dialback/internal/proctest"
)

// openStream connects to the host's echo service and proves that the stream is
// open.
func openStream(t *testing.T, relay string) *proctest.Process {
	t.Helper()
	p := proctest.Dialback(t, nil, "connect", "--relay", relay, "--id", "h")
	echo(t, p, "first")
	return p
}

// echo sends a line and waits until it is back.
func echo(t *testing.T, p *proctest.Process, line string) {
	t.Helper()
	p.Write(line + "\n")
	if got := p.Line(); got != line {
		t.Fatalf("echo of %q is %q", line, got)
	}
}

func health(t *testing.T, relay string) int {
	t.Helper()
	tr := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: tr}).Get(relay + "/health")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// SIGTERM lets streams finish, takes no new host, and ends with 0 (faults.md, 39).
func TestServe_DrainLetsStreamsFinish(t *testing.T) {
	t.Parallel()
	srv, relay := serveRelay(t)
	host := runHost(t, relay, "h", "--to", "tcp://"+proctest.Serve(t, hold))
	stream := openStream(t, relay)
	if got := health(t, relay); got != http.StatusOK {
		t.Errorf("health is %d before the drain, want 200", got)
	}

	srv.Signal(syscall.SIGTERM)
	begun := time.Now()
	if l := srv.Line(); l != "draining" {
		t.Fatalf("serve printed %q after SIGTERM, want draining", l)
	}
	echo(t, stream, "after SIGTERM")
	if got := health(t, relay); got != http.StatusServiceUnavailable {
		t.Errorf("health is %d while draining, want 503", got)
	}
	late := proctest.Dialback(t, nil, "host", "--relay", relay, "--id", "late", "--to", "tcp://127.0.0.1:1")
	if l := late.Line(); !strings.Contains(l, "503") {
		t.Errorf("a new host was told %q, want 503", l)
	}
	if got := run(t, nil, "x\n", "connect", "--relay", relay, "--id", "h"); got.code != 0 || got.stdout != "x\n" {
		t.Errorf("a new client within the notice: %+v, want an answer", got)
	}
	echo(t, stream, "and at the end")
	_ = stream.Stdin.Close()
	if code := stream.Exit(); code != 0 {
		t.Errorf("the stream ended with %d, want 0: the drain lets it finish; stderr: %s", code, stream.Stderr)
	}
	if code := srv.Exit(); code != 0 {
		t.Errorf("serve ended with %d, want 0; stderr: %s", code, srv.Stderr)
	}
	if l := host.Line(); !strings.HasPrefix(l, "offline: ") || !strings.HasSuffix(l, "(1012)") {
		t.Errorf("the host printed %q during the drain, want nothing before its end: it was online all the time", l)
	}
	if took := time.Since(begun); took > drainBound {
		t.Errorf("the drain took %v, want 20 s at most", took)
	}
	if s := srv.Stderr.String(); s != "" {
		t.Errorf("stderr %q, want nothing by default", s)
	}
}

// drainBound is what serve says that a drain takes at most, and what a loaded
// machine may add to it.
const drainBound = 20*time.Second + time.Second

// A stream that does not end by itself gets its grace, and then 1012.
func TestServe_DrainEndsWhatDoesNotFinish(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 20 seconds")
	}
	t.Parallel()
	srv, relay := serveRelay(t)
	runHost(t, relay, "h", "--to", "tcp://"+proctest.Serve(t, hold))
	stream := openStream(t, relay)

	begun := time.Now()
	srv.Signal(syscall.SIGTERM)
	if code := stream.Exit(); code != 1 || !strings.Contains(stream.Stderr.String(), "(1012)") {
		t.Errorf("the stream ended with %d and %q, want 1 and close code 1012", code, stream.Stderr)
	}
	if took := time.Since(begun); took < 15*time.Second {
		t.Errorf("the stream was cut %v after SIGTERM, want its grace of 15 s at least", took)
	}
	if code := srv.Exit(); code != 0 {
		t.Errorf("serve ended with %d, want 0; stderr: %s", code, srv.Stderr)
	}
	if took := time.Since(begun); took > drainBound {
		t.Errorf("the drain took %v, want 20 s at most", took)
	}
}

func TestServe_SecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	srv, relay := serveRelay(t)
	runHost(t, relay, "h", "--to", "tcp://"+proctest.Serve(t, hold))
	openStream(t, relay)
	srv.Signal(syscall.SIGTERM)
	srv.Line()
	srv.Signal(syscall.SIGTERM)
	srv.Exit()
	if ws := srv.Cmd.ProcessState.Sys().(syscall.WaitStatus); !ws.Signaled() || ws.Signal() != syscall.SIGTERM {
		t.Errorf("serve ended with %v, want the signal to end it: nobody wants to wait any more", srv.Cmd.ProcessState)
	}
}

// Whoever reads the output may leave: serve drains all the same, and host goes on
// trying.
func TestServeAndHost_NobodyReadsTheOutput(t *testing.T) {
	t.Parallel()
	srv, line := startHead(t, "serve", "--listen", "127.0.0.1:0", "--log-level", "debug")
	relay := strings.TrimPrefix(line, "listening on ")
	host, line := startHead(t, "host", "--relay", relay, "--id", "h", "--to", "tcp://"+proctest.Serve(t, hold), "--log-level", "debug")
	if !strings.HasPrefix(line, "online: ") {
		t.Fatalf("host printed %q, want online", line)
	}
	stream := openStream(t, relay)

	srv.Signal(syscall.SIGTERM)
	proctest.Within(t, proctest.Patience, "serve drains", func() bool { return health(t, relay) == http.StatusServiceUnavailable })
	echo(t, stream, "while draining")
	_ = stream.Stdin.Close()
	if code := stream.Exit(); code != 0 {
		t.Errorf("the stream ended with %d, want 0; stderr: %s", code, stream.Stderr)
	}
	if code := srv.Exit(); code != 0 {
		t.Errorf("serve ended with %v, want 0", srv.Cmd.ProcessState)
	}

	// The host has noticed, and tries again.
	_, again := serveRelay(t, "--listen", strings.TrimPrefix(relay, "http://"))
	proctest.Within(t, proctest.Patience, "the host is back", func() bool {
		if host.HasEnded() {
			t.Fatalf("host ended with %v, want it to go on trying", host.Cmd.ProcessState)
		}
		return run(t, nil, "", "status", "--relay", again, "--id", "h").code == 0
	})
	host.Terminate()
}

// startHead runs dialback as in "dialback … 2>&1 | grep -m 1 :", and returns the
// line that was read, the first that is not of the log.
func startHead(t *testing.T, args ...string) (*proctest.Process, string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command(proctest.Program, args...)
	cmd.Stdout, cmd.Stderr = w, w
	p := proctest.Start(t, cmd)
	_ = w.Close()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "time=") {
			return p, lines.Text()
		}
	}
	t.Fatalf("%q printed nothing: %v", args, lines.Err())
	return nil, ""
}

// What the Redis client has to say is in the log, at level debug, and nowhere else.
func TestServe_RedisClientKeepsToTheLog(t *testing.T) {
	t.Parallel()
	srv, _ := serveRelay(t, "--store", "redis://127.0.0.1:1", "--log-level", "debug")
	proctest.Within(t, proctest.Patience, "the client has failed to connect", func() bool {
		return strings.Contains(srv.Stderr.String(), "connection pool")
	})
	for line := range strings.Lines(srv.Stderr.String()) {
		if !strings.HasPrefix(line, "time=") || strings.Contains(line, "connection pool") && !strings.Contains(line, " level=DEBUG ") {
			t.Errorf("serve printed %q, want lines of its log, and those of the client at level DEBUG", line)
		}
	}
}

func TestServe_AddressInUse(t *testing.T) {
	t.Parallel()
	_, relay := serveRelay(t)
	got := run(t, nil, "", "serve", "--listen", strings.TrimPrefix(relay, "http://"))
	if got.code != 1 || !strings.Contains(got.stderr, "in use") || got.stdout != "" {
		t.Errorf("second serve at one address: %+v, want 1 and the reason", got)
	}
}
