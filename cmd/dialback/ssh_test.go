//go:build unix

package main_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/dialback/dialback/internal/proctest"
)

// sshWorld is a real OpenSSH server behind a host, and what a client of it needs.
type sshWorld struct {
	t      *testing.T
	server *proctest.SSHD
	relay  string // its URL
	host   *proctest.Process
}

// newSSHWorld starts sshd on a loopback port, with keys of its own, and a relay
// and a host in front of it.
func newSSHWorld(t *testing.T) *sshWorld {
	t.Helper()
	server := proctest.StartSSHD(t)
	w := &sshWorld{t: t, server: server}
	_, w.relay = serveRelay(t)
	w.host = runHost(t, w.relay, "h", "--to", "ssh=tcp://"+server.Addr)
	return w
}

func (w *sshWorld) command(flags []string, remote ...string) *exec.Cmd {
	w.t.Helper()
	return w.server.Command(w.t, w.relay, "h", flags, remote...)
}

func TestSSH_Command(t *testing.T) {
	t.Parallel()
	w := newSSHWorld(t)
	out, err := w.command(nil, "echo from the host; exit 7").Output()
	if exit, ok := err.(*exec.ExitError); string(out) != "from the host\n" || !ok || exit.ExitCode() != 7 {
		t.Errorf("ssh printed %q and ended with %v, want the echo and exit status 7", out, err)
	}
	// The service's process is gone and back: the next client is served at once
	// (faults.md, 9).
	w.host.Kill()
	again := proctest.Dialback(t, nil, w.host.Cmd.Args[1:]...)
	again.Line()
	out, err = w.command(nil, "echo again").Output()
	if string(out) != "again\n" || err != nil {
		t.Errorf("after kill -9 and a new start of the host ssh printed %q, %v, want the echo", out, err)
	}
}

func TestSSH_TwentyAtOnce(t *testing.T) {
	t.Parallel()
	w := newSSHWorld(t)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			cmd := w.command(nil, "cat")
			want := strings.Repeat(fmt.Sprintf("client %d\n", i), 1000)
			cmd.Stdin = strings.NewReader(want)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if out, err := cmd.Output(); string(out) != want || err != nil {
				t.Errorf("client %d: %d of %d bytes, %v; %s", i, len(out), len(want), err, &stderr)
			}
		})
	}
	wg.Wait()
}

// 100 MB there and, at the same time, back.
func TestSSH_HundredMegabytesBothWays(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while")
	}
	t.Parallel()
	const size = 100 << 20
	w := newSSHWorld(t)
	cmd := w.command(nil, "cat")
	sent, got := sha256.New(), &countingHash{Hash: sha256.New()}
	cmd.Stdin = io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{7}), size), sent)
	cmd.Stdout = got
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("ssh: %v; %s", err, &stderr)
	}
	if got.n != size || !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		t.Errorf("sent %d bytes with SHA-256 %x, got %d with %x", size, sent.Sum(nil), got.n, got.Sum(nil))
	}
}

type countingHash struct {
	hash.Hash
	n int64
}

func (h *countingHash) Write(p []byte) (int, error) {
	h.n += int64(len(p))
	return h.Hash.Write(p)
}

// A dialogue with a shell on a terminal: each question waits for the answer
// before it.
func TestSSH_Terminal(t *testing.T) {
	t.Parallel()
	w := newSSHWorld(t)
	p := proctest.Start(t, w.command([]string{"-tt"}, "exec /bin/sh"))
	p.Write("stty -echo; PS1=; PS2=\n")
	ask := func(question, want string) {
		t.Helper()
		p.Write(question + "\n")
		for {
			l := strings.TrimRight(p.Line(), "\r")
			if strings.HasSuffix(l, want) { // a prompt may stand before the first one
				return
			}
			if strings.Contains(l, "not a tty") {
				t.Fatalf("the shell says %q", l)
			}
		}
	}
	ask("tty >/dev/null && echo terminal-$((40+2))", "terminal-42")
	ask("name=typed; echo hello, $name", "hello, typed")
	ask("cat\na line for cat", "a line for cat")
	p.Write("\x04") // the terminal's end of input, for cat
	p.Write("exit 9\n")
	if code := p.Exit(); code != 9 {
		t.Errorf("ssh ended with %d, want 9; stderr: %s", code, p.Stderr)
	}

	// The terminal makes a signal of Control-C.
	p = proctest.Start(t, w.command([]string{"-tt"}, "exec cat"))
	p.Write("typed\n")
	for range 2 { // the terminal's echo, and cat's
		if l := strings.TrimRight(p.Line(), "\r"); l != "typed" {
			t.Fatalf("cat on a terminal printed %q, want what was typed", l)
		}
	}
	p.Write("\x03")
	if code := p.Exit(); code == 0 {
		t.Errorf("ssh ended with 0 after Control-C, want a failure; stdout: %q", p.Stdout)
	}
}
