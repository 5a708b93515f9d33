//go:build linux

package clustertest

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
	"syscall"
	"testing"
	"time"

	"github.com/dialback/dialback/internal/tooltest"
)

// sshServer is a real OpenSSH server with keys of its own, and what its clients
// need.
type sshServer struct {
	t      *testing.T
	addr   string
	client string // path of ssh
	dir    string
}

func startSSHServer(t *testing.T) *sshServer {
	t.Helper()
	sshd := tooltest.Need(t, "sshd", "apt-get install openssh-server")
	keygen := tooltest.Need(t, "ssh-keygen", "apt-get install openssh-client")
	s := &sshServer{t: t, client: tooltest.Need(t, "ssh", "apt-get install openssh-client"), dir: t.TempDir()}
	for _, name := range []string{"host", "user"} {
		if out, err := exec.Command(keygen, "-q", "-t", "ed25519", "-N", "", "-f", s.path(name)).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v\n%s", err, out)
		}
	}
	public, err := os.ReadFile(s.path("host.pub"))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, s.path("known"), "h "+string(public))
	if os.Getuid() == 0 {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // sshd's chroot, which its package's service makes
			t.Fatal(err)
		}
	}
	config := writeFile(t, s.path("config"), strings.Join([]string{
		"HostKey " + s.path("host"), "AuthorizedKeysFile " + s.path("user.pub"), "StrictModes no", "UsePAM no", "PidFile none",
		"PermitRootLogin prohibit-password", "PasswordAuthentication no", "KbdInteractiveAuthentication no",
		"PrintMotd no", "PrintLastLog no", "UseDNS no", "LogLevel ERROR", "",
	}, "\n"))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = ln.Addr().String()
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			running.Go(func() { s.serve(sshd, config, conn.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		running.Wait()
	})
	return s
}

func (s *sshServer) path(name string) string { return filepath.Join(s.dir, name) }

// serve runs sshd for one connection: it takes no port that is chosen for it,
// but with -i it serves what we accept.
func (s *sshServer) serve(sshd, config string, conn *net.TCPConn) {
	f, err := conn.File()
	_ = conn.Close()
	if err != nil {
		return
	}
	defer f.Close()
	cmd := exec.Command(sshd, "-i", "-e", "-f", config)
	cmd.Stdin, cmd.Stdout = f, f
	cmd.WaitDelay = time.Second // a shell that was left behind may hold stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	_ = cmd.Run() // the client sees how it ended
}

// transfer is one ssh that sends bytes and gets them back, for as long as it is
// not ended.
type transfer struct {
	t     *testing.T
	name  string
	p     *process
	stdin io.WriteCloser
	sent  hash.Hash
	got   *countingHash
	stop  chan struct{}
	n     chan int64 // how much was sent, at the end
}

// startTransfer starts an ssh to the service ssh of a host through a relay, by
// dialback connect. It returns when the first bytes have come back.
func (s *sshServer) startTransfer(name, relay, host string) *transfer {
	s.t.Helper()
	me, err := user.Current()
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command(s.client, "-F", "none", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-i", s.path("user"),
		"-o", "StrictHostKeyChecking=yes", "-o", "UserKnownHostsFile="+s.path("known"), "-o", "GlobalKnownHostsFile=none",
		"-o", fmt.Sprintf("ProxyCommand='%s' connect --relay %s --id %s --service ssh", program, relay, host),
		me.Username+"@h", "cat")
	cmd.Env = append(os.Environ(), "SSH_AUTH_SOCK=")
	x := &transfer{
		t: s.t, name: name, sent: sha256.New(), got: &countingHash{Hash: sha256.New()},
		stop: make(chan struct{}), n: make(chan int64, 1),
	}
	cmd.Stdout = x.got
	if x.stdin, err = cmd.StdinPipe(); err != nil {
		s.t.Fatal(err)
	}
	x.p = startCmd(s.t, cmd, syscall.SIGKILL)
	go x.send()
	within(s.t, patience, name+" moves bytes", func() bool {
		if x.p.hasEnded() {
			s.t.Fatalf("%s: ssh has ended: %s", name, x.p.out)
		}
		return x.got.count() > 0
	})
	return x
}

// send sends random bytes, a few megabytes a second, until end or the end of ssh.
func (x *transfer) send() {
	random := rand.NewChaCha8([32]byte{7})
	b := make([]byte, 64<<10)
	var n int64
	for more := true; more; {
		_, _ = random.Read(b)
		if _, err := x.stdin.Write(b); err != nil {
			break
		}
		x.sent.Write(b)
		n += int64(len(b))
		select {
		case <-x.stop:
			more = false
		case <-time.After(pause):
		}
	}
	_ = x.stdin.Close()
	x.n <- n
}

// end ends the transfer and checks that all of it came back.
func (x *transfer) end() {
	x.t.Helper()
	if x.p.hasEnded() {
		x.t.Errorf("%s: ssh ended by itself: %s", x.name, x.p.out)
	}
	close(x.stop)
	n := <-x.n
	select {
	case <-x.p.done:
	case <-time.After(patience):
		x.t.Fatalf("%s: ssh has not ended: %s", x.name, x.p.out)
	}
	if code := x.p.cmd.ProcessState.ExitCode(); code != 0 {
		x.t.Errorf("%s: ssh ended with %d: %s", x.name, code, x.p.out)
	}
	if got := x.got.count(); got != n || !bytes.Equal(x.sent.Sum(nil), x.got.Sum(nil)) {
		x.t.Errorf("%s: sent %d bytes with SHA-256 %x, got %d with %x", x.name, n, x.sent.Sum(nil), got, x.got.Sum(nil))
	}
	x.t.Logf("%s: %d bytes there and back", x.name, n)
}

// countingHash is a hash that can be asked, while it is written to, for how
// much it has.
type countingHash struct {
	hash.Hash

	mu sync.Mutex
	n  int64
}

func (h *countingHash) Write(p []byte) (int, error) {
	h.mu.Lock()
	h.n += int64(len(p))
	h.mu.Unlock()
	return h.Hash.Write(p)
}

func (h *countingHash) count() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}
