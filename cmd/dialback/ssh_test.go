//go:build unix

package main_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dialback/dialback/internal/tooltest"
)

// sshWorld is a real OpenSSH server behind a host, and what a client of it needs.
type sshWorld struct {
	t      *testing.T
	host   *process
	client string   // path of ssh
	args   []string // of ssh, up to and with the destination
}

// newSSHWorld starts sshd on a loopback port, with keys of its own, and a relay
// and a host in front of it.
func newSSHWorld(t *testing.T) *sshWorld {
	t.Helper()
	sshd := tooltest.Need(t, "sshd", "apt-get install openssh-server")
	client := tooltest.Need(t, "ssh", "apt-get install openssh-client")
	keygen := tooltest.Need(t, "ssh-keygen", "apt-get install openssh-client")
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key := func(name string) (path, public string) {
		path = filepath.Join(dir, name)
		if out, err := exec.Command(keygen, "-q", "-t", "ed25519", "-N", "", "-f", path).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v\n%s", err, out)
		}
		p, err := os.ReadFile(path + ".pub")
		if err != nil {
			t.Fatal(err)
		}
		return path, string(p)
	}
	hostKey, hostPublic := key("host")
	userKey, userPublic := key("user")

	addr := startSSHD(t, sshd, file, hostKey, file("authorized", userPublic))
	_, relay := serveRelay(t)
	w := &sshWorld{t: t, client: client}
	w.host = runHost(t, relay, "h", "--to", "ssh=tcp://"+addr)

	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	w.args = []string{
		"-F", "none", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-i", userKey,
		"-o", "StrictHostKeyChecking=yes", "-o", "UserKnownHostsFile=" + file("known", "h "+hostPublic), "-o", "GlobalKnownHostsFile=none",
		"-o", fmt.Sprintf("ProxyCommand='%s' connect --relay %s --id h --service ssh", program, relay),
		me.Username + "@h",
	}
	return w
}

// startSSHD runs sshd until the test ends, and returns its address.
func startSSHD(t *testing.T, sshd string, file func(name, content string) string, hostKey, authorized string) string {
	t.Helper()
	if os.Getuid() == 0 {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // sshd's chroot, which its package's service makes
			t.Fatal(err)
		}
	}
	// sshd takes no port that is chosen for it: with -i it serves what we accept.
	config := file("sshd_config", strings.Join([]string{
		"HostKey " + hostKey, "AuthorizedKeysFile " + authorized, "StrictModes no", "UsePAM no", "PidFile none",
		"PermitRootLogin prohibit-password", "PasswordAuthentication no", "KbdInteractiveAuthentication no",
		"PrintMotd no", "PrintLastLog no", "UseDNS no", "LoginGraceTime 60", "LogLevel ERROR", "",
	}, "\n"))
	return tcpService(t, func(c *net.TCPConn) {
		f, err := c.File()
		if err != nil {
			return
		}
		defer f.Close()
		cmd := exec.Command(sshd, "-i", "-e", "-f", config)
		cmd.Stdin, cmd.Stdout = f, f
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		cmd.WaitDelay = time.Second // a shell that was left behind may hold stderr
		err = cmd.Run()
		if stderr.Len() > 0 {
			t.Logf("sshd: %v: %s", err, &stderr)
		}
	})
}

func (w *sshWorld) command(flags []string, remote ...string) *exec.Cmd {
	args := append(append([]string{}, flags...), w.args...)
	cmd := exec.Command(w.client, append(args, remote...)...)
	cmd.Env = append(os.Environ(), "SSH_AUTH_SOCK=")
	return cmd
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
	w.host.kill()
	again := start(t, nil, w.host.cmd.Args[1:]...)
	again.line()
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
	p := startCmd(t, w.command([]string{"-tt"}, "exec /bin/sh"))
	p.write("stty -echo; PS1=; PS2=\n")
	ask := func(question, want string) {
		t.Helper()
		p.write(question + "\n")
		for {
			l := strings.TrimRight(p.line(), "\r")
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
	p.write("\x04") // the terminal's end of input, for cat
	p.write("exit 9\n")
	if code := p.exit(); code != 9 {
		t.Errorf("ssh ended with %d, want 9; stderr: %s", code, p.stderr)
	}

	// The terminal makes a signal of Control-C.
	p = startCmd(t, w.command([]string{"-tt"}, "exec cat"))
	p.write("typed\n")
	for range 2 { // the terminal's echo, and cat's
		if l := strings.TrimRight(p.line(), "\r"); l != "typed" {
			t.Fatalf("cat on a terminal printed %q, want what was typed", l)
		}
	}
	p.write("\x03")
	if code := p.exit(); code == 0 {
		t.Errorf("ssh ended with 0 after Control-C, want a failure; stdout: %q", p.stdout)
	}
}
