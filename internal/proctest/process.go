package proctest

import (
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// Process is a running program of a test. It is killed when the test ends and,
// on Linux, when the test's own process does.
type Process struct {
	// Immutable after Start.
	Cmd    *exec.Cmd
	Stdin  io.WriteCloser // nil if the command had a standard input already
	Stdout *Output
	Stderr *Output

	tb   testing.TB
	done chan struct{} // closed when the process has ended
}

// Start starts cmd. Its output goes to the process's Stdout and Stderr, but not
// what cmd has a place for already.
func Start(tb testing.TB, cmd *exec.Cmd) *Process {
	tb.Helper()
	p := &Process{Cmd: cmd, Stdout: newOutput(), Stderr: newOutput(), tb: tb, done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = p.Stdout
	}
	if cmd.Stderr == nil {
		cmd.Stderr = p.Stderr
	}
	var err error
	if cmd.Stdin == nil {
		if p.Stdin, err = cmd.StdinPipe(); err != nil {
			tb.Fatal(err)
		}
	}
	cmd.WaitDelay = 2 * time.Second // a child of it that was left behind may hold its output
	if cmd.SysProcAttr == nil {
		EndWithParent(cmd, syscall.SIGKILL)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	go p.wait()
	tb.Cleanup(p.Kill)
	return p
}

// Dialback starts the command dialback with args; env are further variables.
func Dialback(tb testing.TB, env []string, args ...string) *Process {
	tb.Helper()
	cmd := exec.Command(Program, args...)
	cmd.Env = append(os.Environ(), env...)
	return Start(tb, cmd)
}

func (p *Process) wait() {
	_ = p.Cmd.Wait() // the state has the exit code
	p.Stdout.close()
	p.Stderr.close()
	close(p.done)
}

// Pid is the process's ID.
func (p *Process) Pid() int { return p.Cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// HasEnded reports whether the process is gone.
func (p *Process) HasEnded() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Kill is kill -9. It returns when the process is gone, and may be called twice.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill() // it may have ended
	<-p.done
}

// Signal sends sig, which the process may handle.
func (p *Process) Signal(sig os.Signal) {
	p.tb.Helper()
	if err := p.Cmd.Process.Signal(sig); err != nil {
		p.tb.Fatalf("signal %v to %q: %v", sig, p.Cmd.Args, err)
	}
}

// Terminate asks the process to end, and checks that it ends with 0.
func (p *Process) Terminate() {
	p.tb.Helper()
	p.Signal(syscall.SIGTERM)
	if code := p.Exit(); code != 0 {
		p.tb.Errorf("%q ended with %d after SIGTERM, want 0\n%s", p.Cmd.Args, code, p.Output())
	}
}

// Exit waits for the end and returns the exit code; -1 is that of a signal.
func (p *Process) Exit() int {
	p.tb.Helper()
	select {
	case <-p.done:
	case <-time.After(Patience):
		p.tb.Fatalf("%q has not ended\n%s", p.Cmd.Args, p.Output())
	}
	return p.Cmd.ProcessState.ExitCode()
}

// Line waits for the next line of standard output.
func (p *Process) Line() string {
	p.tb.Helper()
	select {
	case l, ok := <-p.Stdout.Lines():
		if !ok {
			p.tb.Fatalf("%q ended without the line that was waited for\n%s", p.Cmd.Args, p.Output())
		}
		return l
	case <-time.After(Patience):
		p.tb.Fatalf("%q printed no further line\n%s", p.Cmd.Args, p.Output())
	}
	return ""
}

// Write sends s to standard input.
func (p *Process) Write(s string) {
	p.tb.Helper()
	if _, err := io.WriteString(p.Stdin, s); err != nil {
		p.tb.Fatalf("write to %q: %v\n%s", p.Cmd.Args, err, p.Output())
	}
}

// Output is all that was printed so far, standard output first.
func (p *Process) Output() string { return p.Stdout.String() + p.Stderr.String() }
