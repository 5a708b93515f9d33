//go:build linux

package clustertest

import (
	"bytes"
	"context"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for what must come: it is a bound against
// hanging, not a limit on speed.
const patience = time.Minute

// busy is what a machine with too much to do may add to a time that is promised.
const busy = time.Second

// process is a running program of a test; it is killed when the test ends, or
// when the test's own process does.
type process struct {
	// Immutable after start.
	t    *testing.T
	cmd  *exec.Cmd
	out  *output
	done chan struct{} // closed when the process has ended
}

func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	return startCmd(t, exec.Command(name, args...), syscall.SIGKILL)
}

// startCmd starts cmd, which ends with last when the test's own process dies.
func startCmd(t *testing.T, cmd *exec.Cmd, last syscall.Signal) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, out: &output{}, done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = p.out
	}
	cmd.Stderr = p.out
	cmd.WaitDelay = 2 * time.Second // a child of it that was left behind may hold its output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: last}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.wait()
	t.Cleanup(p.kill)
	return p
}

func (p *process) wait() {
	_ = p.cmd.Wait() // the state has the exit code
	close(p.done)
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatalf("signal %v to %q: %v", sig, p.cmd.Args, err)
	}
}

// terminate asks the process to end, and checks that it ends with 0.
func (p *process) terminate() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("%q has not ended after SIGTERM\n%s", p.cmd.Args, p.out)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.t.Errorf("%q ended with %d after SIGTERM, want 0\n%s", p.cmd.Args, code, p.out)
	}
}

// hasEnded reports whether the process is gone.
func (p *process) hasEnded() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// output collects what a process prints.
type output struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.Write(p)
}

// String is all that was printed so far.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}

// events are the lines that were printed last, without those about single calls.
func (o *output) events() string {
	const most = 100
	lines := slices.DeleteFunc(strings.Split(o.String(), "\n"), func(l string) bool { return strings.Contains(l, " msg=failed ") })
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

// within waits until ok says so, for limit at most, and returns how long it took.
// When it takes longer the test fails, and what says what was waited for.
func within(t *testing.T, limit time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %v", what, limit)
		case <-tick.C:
		}
	}
	return time.Since(begun)
}
