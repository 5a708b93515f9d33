//go:build unix

package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/dialback/dialback/internal/proctest"
	"github.com/dialback/dialback/transport"
)

// secret is the token that no output may have.
const secret = "s3cr3t-0123456789"

// countInput answers only when its input has ended, with what it was.
func countInput(c *net.TCPConn) {
	p, err := io.ReadAll(c)
	if err == nil {
		_, _ = c.Write(append([]byte("read: "), p...))
	}
}

func TestConnect_EndOfInputDoesNotCutTheAnswer(t *testing.T) {
	t.Parallel()
	_, relay := serveRelay(t)
	runHost(t, relay, "h", "--to", "count=tcp://"+proctest.Serve(t, countInput))
	got := run(t, nil, "hello", "connect", "--relay", relay, "--id", "h", "--service", "count")
	if want := (outcome{0, "read: hello", ""}); got != want {
		t.Errorf("got %+v, want %+v: the end of standard input is a half close", got, want)
	}
}

func TestConnect_EndOfAnswerDoesNotCutTheInput(t *testing.T) {
	t.Parallel()
	got := make(chan string, 1)
	answerFirst := func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "ready\n")
		_ = c.CloseWrite()
		p, err := io.ReadAll(c)
		if err != nil {
			p = []byte(err.Error())
		}
		got <- string(p)
	}
	_, relay := serveRelay(t)
	runHost(t, relay, "h", "--to", "tcp://"+proctest.Serve(t, answerFirst))

	p, stdout := startConnect(t, "--relay", relay, "--id", "h")
	answer, err := io.ReadAll(stdout) // connect has closed its output when this returns
	if string(answer) != "ready\n" || err != nil {
		t.Fatalf("answer %q, %v, want ready", answer, err)
	}
	p.Write("all of the input")
	_ = p.Stdin.Close()
	if s := <-got; s != "all of the input" {
		t.Errorf("the service got %q after it had ended its answer, want all of the input", s)
	}
	if code := p.Exit(); code != 0 {
		t.Errorf("exit code %d, want 0; stderr: %s", code, p.Stderr)
	}
}

// A service that closes without having read everything, as head does, is no
// failure; connect must notice it although its own input goes on.
func TestConnect_ServiceClosesWhileInputIsOpen(t *testing.T) {
	t.Parallel()
	readOne := func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "ready\n")
		_ = c.CloseWrite()
		_, _ = io.ReadFull(c, make([]byte, 1))
	}
	_, relay := serveRelay(t)
	runHost(t, relay, "h", "--to", "tcp://"+proctest.Serve(t, readOne))
	p, stdout := startConnect(t, "--relay", relay, "--id", "h")
	if answer, err := io.ReadAll(stdout); string(answer) != "ready\n" || err != nil {
		t.Fatalf("answer %q, %v, want ready", answer, err)
	}
	fed := make(chan struct{})
	go func() { // as a shell would: until the pipe breaks
		defer close(fed)
		for {
			if _, err := io.WriteString(p.Stdin, "y\n"); err != nil {
				return
			}
		}
	}()
	if code := p.Exit(); code != 0 {
		t.Errorf("exit code %d, want 0; stderr: %s", code, p.Stderr)
	}
	<-fed
}

// startConnect runs dialback connect; the reader is the other end of its
// standard output, and ends when connect closes that.
func startConnect(t *testing.T, args ...string) (*proctest.Process, io.Reader) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	cmd := exec.Command(proctest.Program, append([]string{"connect"}, args...)...)
	cmd.Stdout = w
	p := proctest.Start(t, cmd)
	_ = w.Close() // the process has its own
	return p, r
}

func TestConnect_Bytes(t *testing.T) {
	t.Parallel()
	echo := func(c *net.TCPConn) { _, _ = io.Copy(c, c) }
	_, relay := serveRelay(t)
	runHost(t, relay, "h", "--to", "tcp://"+proctest.Serve(t, echo))
	input := make([]byte, 5<<20+1)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(input)
	cmd := exec.Command(proctest.Program, "connect", "--relay", relay, "--id", "h")
	cmd.Stdin = bytes.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	got, err := cmd.Output()
	if err != nil || !bytes.Equal(got, input) {
		t.Errorf("sent %d bytes and got %d back, equal: %v; %v; stderr: %s", len(input), len(got), bytes.Equal(got, input), err, &stderr)
	}
}

func TestConnect_Failures(t *testing.T) {
	t.Parallel()
	_, relay := serveRelay(t)
	_, guarded := serveRelay(t, "--token", secret)
	runHost(t, relay, "h", "--to", "shut=tcp://"+closedPort(t), "--to", "page=http://127.0.0.1:1")
	connectV2(t, relay, "old")
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"offline host", []string{"--relay", relay, "--id", "nobody"}, "host offline (1013)"},
		{"unknown service", []string{"--relay", relay, "--id", "h", "--service", "nosuch"}, "(4412)"},
		{"service is down", []string{"--relay", relay, "--id", "h", "--service", "shut"}, "(4412)"},
		{"service speaks HTTP", []string{"--relay", relay, "--id", "h", "--service", "page"}, "(4412)"},
		{"v2 host", []string{"--relay", relay, "--id", "old"}, "speaks v2"},
		{"v2 host", []string{"--relay", relay, "--id", "old"}, "(4400)"},
		{"no token", []string{"--relay", guarded, "--id", "h"}, "a token is required (4401)"},
		{"wrong token", []string{"--relay", guarded, "--id", "h", "--token", "other-" + secret}, "wrong token (4401)"},
		{"bad host id", []string{"--relay", relay, "--id", "a/b"}, "(4400)"},
		{"not a relay", []string{"--relay", relay + "/elsewhere", "--id", "h"}, "404"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := run(t, nil, "", append([]string{"connect"}, tt.args...)...)
			if got.code != 1 || got.stdout != "" {
				t.Errorf("exit code %d, stdout %q, want 1 and nothing", got.code, got.stdout)
			}
			if !strings.HasPrefix(got.stderr, "dialback connect: ") || !strings.Contains(got.stderr, tt.want) || strings.Count(got.stderr, "\n") != 1 {
				t.Errorf("stderr %q, want one line with the reason %q", got.stderr, tt.want)
			}
			if strings.Contains(got.stderr, secret) {
				t.Errorf("stderr has the token: %s", got.stderr)
			}
		})
	}
}

// hold keeps a stream open until the client ends it.
func hold(c *net.TCPConn) { _, _ = io.Copy(c, c) }

func TestConnect_HostDies(t *testing.T) {
	t.Parallel()
	_, relay := serveRelay(t)
	host := runHost(t, relay, "h", "--to", "tcp://"+proctest.Serve(t, hold))
	p := proctest.Dialback(t, nil, "connect", "--relay", relay, "--id", "h")
	p.Write("hello\n")
	p.Line()
	host.Kill()
	if code := p.Exit(); code != 1 || !strings.Contains(p.Stderr.String(), "(4410)") {
		t.Errorf("exit code %d, stderr %q, want 1 and close code 4410: the host's data socket ended abnormally", code, p.Stderr)
	}
}

func TestConnect_RelayDies(t *testing.T) {
	t.Parallel()
	srv, relay := serveRelay(t)
	runHost(t, relay, "h", "--to", "tcp://"+proctest.Serve(t, hold))
	p := proctest.Dialback(t, nil, "connect", "--relay", relay, "--id", "h")
	p.Write("hello\n")
	p.Line()
	srv.Kill()
	if code := p.Exit(); code != 1 || !strings.Contains(p.Stderr.String(), "the connection to the relay was lost") {
		t.Errorf("exit code %d, stderr %q, want 1 and that the relay was lost", code, p.Stderr)
	}
}

// ssh ends its ProxyCommand as soon as that closes its output: the reason must
// have been said by then, or the user learns of no more than a closed connection.
func TestConnect_SaysWhyBeforeItsOutputEnds(t *testing.T) {
	t.Parallel()
	_, relay := serveRelay(t)
	for range 10 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(proctest.Program, "connect", "--relay", relay, "--id", "offline")
		cmd.Stdout = w
		p := proctest.Start(t, cmd)
		_ = w.Close()
		out, err := io.ReadAll(r)
		p.Kill()
		_ = r.Close()
		if s := p.Stderr.String(); err != nil || len(out) > 0 || !strings.Contains(s, "(1013)") {
			t.Errorf("output %q, %v; stderr %q when it ended, want the reason and 1013", out, err, s)
		}
	}
}

// A client that is interrupted must not look like one that has sent all: the
// service's connection is reset.
func TestConnect_InterruptIsNoCleanEnd(t *testing.T) {
	t.Parallel()
	end := make(chan error, 1)
	report := func(c *net.TCPConn) {
		_, err := io.Copy(c, c)
		end <- err
	}
	_, relay := serveRelay(t)
	runHost(t, relay, "h", "--to", "tcp://"+proctest.Serve(t, report))
	p := proctest.Dialback(t, nil, "connect", "--relay", relay, "--id", "h")
	p.Write("hello\n")
	p.Line()
	p.Signal(syscall.SIGTERM)
	if code := p.Exit(); code != 1 || !strings.Contains(p.Stderr.String(), "interrupted") {
		t.Errorf("exit code %d, stderr %q, want 1 and interrupted", code, p.Stderr)
	}
	if err := <-end; err == nil {
		t.Error("the service saw a clean end of its input, want a reset: the input was cut short")
	}
}

// closedPort is a loopback address where nothing listens.
func closedPort(t *testing.T) string {
	t.Helper()
	// A port that is bound and does not listen refuses, and nobody else gets it.
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	sa, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(sa.(*syscall.SockaddrInet4).Port))
}

// connectV2 attaches a host that speaks v2 and hears its dials out.
func connectV2(t *testing.T, relay, id string) {
	t.Helper()
	conn, err := transport.Dial(context.Background(), relay+"/v2/control?hostId="+id, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.CloseNow(); <-conn.Done() })
	if err := conn.Write(transport.Text, transport.Encode(transport.Ping{})); err != nil {
		t.Fatal(err)
	}
	_, r, err := conn.Reader()
	if err != nil {
		t.Fatal(err)
	}
	p, err := io.ReadAll(r)
	if f, _ := transport.Decode(p); f != (transport.Pong{}) || err != nil {
		t.Fatalf("first frame %q, %v, want a pong: it says that the host is attached", p, err)
	}
	go readOut(conn)
}

// readOut reads until conn is over.
func readOut(conn transport.Conn) {
	for {
		_, r, err := conn.Reader()
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			return
		}
	}
}

// What others say is printed without what a terminal obeys: the reason of a host
// by connect, what a relay says by host and status.
func TestOthersWordsAreNoCommandsToATerminal(t *testing.T) {
	t.Parallel()
	const words = "\x1b]0;title\x07\x1b[2J\r\nWarning:\u202e paste your password\u009b1A"
	check := func(name, out string) {
		t.Helper()
		if !strings.Contains(out, "paste your password") {
			t.Errorf("%s printed %q, want the reason", name, out)
		}
		if strings.ContainsAny(out, "\x1b\x07\r\u202e\u009b") || strings.Count(out, "\n") > 1 {
			t.Errorf("%s printed %q, want it without control characters", name, out)
		}
	}

	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/connect/"): // the relay passes on what the host says
			if c, err := transport.Accept(w, r, nil); err == nil {
				_ = c.Write(transport.Binary, []byte("answer"))
				c.Close(4000, words)
			}
		case r.URL.Path == "/v2/control":
			if c, err := transport.Accept(w, r, nil); err == nil {
				_ = c.Write(transport.Text, transport.Encode(transport.Hello{Node: words, Generation: 1}))
				c.Close(transport.CloseForbidden, words)
			}
		default:
			var e struct {
				Error struct {
					Message string `json:"message"`
				} `json:"error"`
			}
			e.Error.Message = words
			w.WriteHeader(http.StatusForbidden)
			_ = json.NewEncoder(w).Encode(e)
		}
	}))
	defer srv.Close()
	check("connect", run(t, nil, "", "connect", "--relay", srv.URL, "--id", "h").stderr)
	check("status", run(t, nil, "", "status", "--relay", srv.URL, "--id", "h").stderr)
	host := proctest.Dialback(t, nil, "host", "--relay", srv.URL, "--id", "h", "--to", "tcp://127.0.0.1:1")
	check("host, online", host.Line())
	check("host, offline", host.Line())
}
