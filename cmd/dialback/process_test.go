//go:build unix

package main_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for what must come: it is a bound against
// hanging, not a limit on speed.
const patience = time.Minute

// process is a running command of a test; it is killed when the test ends.
type process struct {
	// Immutable after start.
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *output
	stderr *output
	done   chan struct{} // closed when the process has ended
}

// start runs dialback with args; env are further variables.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	return startCmd(t, cmd)
}

// startCmd starts cmd. Its output goes to the process's stdout and stderr, but
// not the part that cmd has a place for already.
func startCmd(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, stdout: newOutput(), stderr: newOutput(), done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = p.stdout
	}
	cmd.Stderr = p.stderr
	var err error
	if cmd.Stdin == nil {
		if p.stdin, err = cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.wait()
	t.Cleanup(p.kill)
	return p
}

func (p *process) wait() {
	_ = p.cmd.Wait() // the state has the exit code
	p.stdout.close()
	p.stderr.close()
	close(p.done)
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// signal sends sig, which the process may handle.
func (p *process) signal(sig os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatalf("signal %v to %q: %v", sig, p.cmd.Args, err)
	}
}

// terminate asks the process to end, and checks that it ends with 0.
func (p *process) terminate() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != 0 {
		p.t.Errorf("%q ended with %d after SIGTERM, want 0; stderr: %s", p.cmd.Args, code, p.stderr)
	}
}

// exit waits for the end and returns the exit code; -1 is that of a signal.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("%q has not ended\nstdout: %s\nstderr: %s", p.cmd.Args, p.stdout, p.stderr)
	}
	return p.cmd.ProcessState.ExitCode()
}

// line waits for the next line of standard output.
func (p *process) line() string {
	p.t.Helper()
	select {
	case l, ok := <-p.stdout.lines:
		if !ok {
			p.t.Fatalf("%q ended without the line that was waited for; stderr: %s", p.cmd.Args, p.stderr)
		}
		return l
	case <-time.After(patience):
		p.t.Fatalf("%q printed no further line\nstdout: %q\nstderr: %s", p.cmd.Args, p.stdout, p.stderr)
	}
	return ""
}

// write sends s to standard input.
func (p *process) write(s string) {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, s); err != nil {
		p.t.Fatalf("write to %q: %v; stderr: %s", p.cmd.Args, err, p.stderr)
	}
}

// output collects what a process prints, and splits it into lines.
type output struct {
	lines chan string // sent to by split, closed by it; nobody need receive
	pipe  *io.PipeWriter

	mu  sync.Mutex
	all bytes.Buffer
}

const maxLines = 1024

func newOutput() *output {
	r, w := io.Pipe()
	o := &output{lines: make(chan string, maxLines), pipe: w}
	go o.split(r)
	return o
}

func (o *output) split(r io.Reader) {
	defer close(o.lines)
	sc := bufio.NewScanner(r)
	for n := 0; sc.Scan() && n < maxLines; n++ {
		o.lines <- sc.Text()
	}
	_, _ = io.Copy(io.Discard, r) // what is no line any more
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	o.all.Write(p)
	o.mu.Unlock()
	return o.pipe.Write(p)
}

func (o *output) close() { _ = o.pipe.Close() }

// String is all that was printed so far.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}

// outcome is what a finished command left.
type outcome struct {
	code   int
	stdout string
	stderr string
}

// run runs dialback to its end, with input as its whole standard input.
func run(t *testing.T, env []string, input string, args ...string) outcome {
	t.Helper()
	p := start(t, env, args...)
	_, err := io.WriteString(p.stdin, input)
	if cerr := p.stdin.Close(); err == nil {
		err = cerr
	}
	code := p.exit()
	if err != nil && code == 0 && !errors.Is(err, os.ErrClosed) {
		t.Errorf("%q ended with 0 and did not read its input: %v", args, err)
	}
	return outcome{code, p.stdout.String(), p.stderr.String()}
}

// serveRelay runs dialback serve on a free port and returns its URL.
func serveRelay(t *testing.T, args ...string) (*process, string) {
	t.Helper()
	p := start(t, nil, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	url, ok := strings.CutPrefix(p.line(), "listening on ")
	if !ok {
		t.Fatalf("serve printed %q, want its address", p.stdout)
	}
	return p, url
}

// runHost runs dialback host and waits until it is online.
func runHost(t *testing.T, relay, id string, args ...string) *process {
	t.Helper()
	p := start(t, nil, append([]string{"host", "--relay", relay, "--id", id}, args...)...)
	if l := p.line(); !strings.HasPrefix(l, "online: "+id+" ") {
		t.Fatalf("host printed %q, want one line that says that it is online", l)
	}
	return p
}
