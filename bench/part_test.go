package bench_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// The environment of a part.
const (
	partEnv    = "DIALBACK_BENCH_PART"    // its name
	addrsEnv   = "DIALBACK_BENCH_ADDRS"   // the addresses that it needs
	profileEnv = "DIALBACK_BENCH_PROFILE" // a directory for CPU profiles
)

// part is a process of the test binary that plays one part. In one process all
// parts together would be several times as fast as anything real.
//
// It speaks by lines: the first one that it prints is its addresses, and from
// then on each line that it is told is answered by one line. It ends when its
// standard input does, so it does not outlive this process either.
type part struct {
	name  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	addrs []string
}

// startPart starts a part that needs addrs, with env on top of this process's
// environment, and waits until it is ready. The caller stops it.
func startPart(name string, addrs []string, env ...string) (*part, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &part{name: name, cmd: exec.Command(exe)}
	p.cmd.Env = append(os.Environ(), partEnv+"="+name, addrsEnv+"="+strings.Join(addrs, " "))
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := p.readLine()
	if err != nil {
		p.stop()
		return nil, err
	}
	p.addrs = strings.Fields(line)
	return p, nil
}

// startPartOf is startPart for a part that ends with the test.
func startPartOf(tb testing.TB, name string, addrs ...string) *part {
	tb.Helper()
	p, err := startPart(name, addrs)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.stop)
	return p
}

func (p *part) readLine() (string, error) {
	line, err := p.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("part %s does not answer: %w", p.name, err)
	}
	return strings.TrimSpace(line), nil
}

// do tells the part to do something and waits until it has.
func (p *part) do(format string, args ...any) error {
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		return err
	}
	line, err := p.readLine()
	if err == nil && line != "ok" {
		err = errors.New(line)
	}
	return err
}

// stop ends the process.
func (p *part) stop() {
	_ = p.in.Close()
	kill := time.AfterFunc(5*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	_ = p.cmd.Wait()
}

// serveLines is the other end of part: it prints addrs and then obeys, until
// standard input ends.
func serveLines(obey func(line string) error, addrs ...string) error {
	fmt.Println(strings.Join(addrs, " "))
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if err := obey(in.Text()); err != nil {
			fmt.Println(strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println("ok")
		}
	}
	return in.Err()
}

// wait is serveLines for a part that is told nothing.
func wait(addrs ...string) error {
	return serveLines(func(line string) error { return fmt.Errorf("unknown order %q", line) }, addrs...)
}
