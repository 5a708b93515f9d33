// Package redistest starts Redis servers for tests.
//
// It needs redis-server in PATH. Without it tests are skipped, or fail if
// DIALBACK_CI=1 is in the environment, so that CI never skips them unnoticed.
package redistest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// startTimeout limits how long a server, or a Cluster, may take to answer.
const startTimeout = 30 * time.Second

// Server is one redis-server that listens on a unix socket, or on a loopback
// address as a member of a Cluster. It ends with the test.
type Server struct {
	// Network and Addr are where it listens, as for net.Dial.
	Network, Addr string

	where  []string // the part of its command line that says where it listens
	cmd    *exec.Cmd
	log    *bytes.Buffer // its output; to be read when exited is closed
	exited chan struct{} // closed by wait
}

// Start starts a server on a unix socket in a directory of the test's own. It
// keeps nothing on disk. args are added to its command line.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	sock := filepath.Join(socketDir(tb), "redis.sock")
	s := start(tb, "unix", sock, []string{"--port", "0", "--unixsocket", sock}, args...)
	if !s.answers(tb) {
		tb.Fatalf("redis-server does not answer:\n%s", s.output())
	}
	return s
}

// Client returns a client of the server without retries. It is closed when the
// test ends.
func (s *Server) Client(tb testing.TB) *goredis.Client {
	tb.Helper()
	c := goredis.NewClient(&goredis.Options{
		Network:               s.Network,
		Addr:                  s.Addr,
		MaxRetries:            -1,
		DialerRetries:         1,
		ContextTimeoutEnabled: true,
	})
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// Pid is the process ID of the server.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// Stop kills the server and waits until it is gone. It may be called twice.
func (s *Server) Stop() {
	_ = s.cmd.Process.Kill() // fails if it is gone already
	<-s.exited
}

// Restart starts a server again that was stopped: at the same address, empty, and
// with args in place of those that Start had. It does not wait until the server
// answers. It must not be called concurrently with other methods.
func (s *Server) Restart(tb testing.TB, args ...string) {
	tb.Helper()
	s.launch(tb, args)
}

func start(tb testing.TB, network, addr string, where []string, args ...string) *Server {
	tb.Helper()
	s := &Server{Network: network, Addr: addr, where: where}
	s.launch(tb, args)
	tb.Cleanup(s.Stop)
	return s
}

func (s *Server) launch(tb testing.TB, args []string) {
	tb.Helper()
	s.log, s.exited = new(bytes.Buffer), make(chan struct{})
	s.cmd = exec.Command(binary(tb), slices.Concat(s.where, args, []string{
		"--save", "", "--appendonly", "no", "--daemonize", "no",
		"--loglevel", "warning", "--dir", tb.TempDir(),
	})...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	endWithParent(s.cmd)
	if err := s.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	go wait(s.cmd, s.exited)
}

// wait is the goroutine that waits for the process; Stop waits for it.
func wait(cmd *exec.Cmd, exited chan<- struct{}) {
	defer close(exited)
	_ = cmd.Wait() // killed, or its output tells why
}

// answers waits until the server answers, and says whether it does.
func (s *Server) answers(tb testing.TB) bool {
	tb.Helper()
	c := s.Client(tb)
	return s.waitFor(tb, func() bool { return c.Ping(tb.Context()).Err() == nil })
}

// waitFor waits until ready says so, while the server runs and for startTimeout
// at most, and says whether it was.
func (s *Server) waitFor(tb testing.TB, ready func() bool) bool {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if ready() {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-s.exited:
			return false
		case <-tick.C:
		}
	}
}

// output ends the server and returns what it wrote.
func (s *Server) output() string {
	s.Stop()
	return s.log.String()
}

// binary returns the path of redis-server, or skips the test.
func binary(tb testing.TB) string {
	tb.Helper()
	path, err := exec.LookPath("redis-server")
	if err == nil {
		return path
	}
	if os.Getenv("DIALBACK_CI") == "1" {
		tb.Fatalf("DIALBACK_CI=1 asks for tests with a real Redis: %v", err)
	}
	tb.Skipf("needs a real Redis: %v", err)
	return ""
}

// socketDir returns a directory whose name is short enough for the path of a
// unix socket, which has about 100 bytes at most.
func socketDir(tb testing.TB) string {
	tb.Helper()
	if dir := tb.TempDir(); len(dir) < 80 {
		return dir
	}
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Version returns the server's version, for logs.
func (s *Server) Version(tb testing.TB) string {
	tb.Helper()
	info, err := s.Client(tb).Info(tb.Context(), "server").Result()
	if err != nil {
		tb.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "redis_version:")
	version, _, _ := strings.Cut(rest, "\r\n")
	return version
}
