package proctest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dialback/dialback/internal/tooltest"
)

// SSHD is a real OpenSSH server with keys of its own, and what its clients need.
type SSHD struct {
	Addr string // on loopback

	ssh string // path of the client
	dir string // of keys and configuration
}

// StartSSHD starts a server that runs until the test ends. Without OpenSSH the
// test is skipped.
func StartSSHD(tb testing.TB) *SSHD {
	tb.Helper()
	sshd := tooltest.Need(tb, "sshd", "apt-get install openssh-server")
	keygen := tooltest.Need(tb, "ssh-keygen", "apt-get install openssh-client")
	s := &SSHD{ssh: tooltest.Need(tb, "ssh", "apt-get install openssh-client"), dir: tb.TempDir()}
	for _, name := range []string{"host", "user"} {
		if out, err := exec.Command(keygen, "-q", "-t", "ed25519", "-N", "", "-f", s.path(name)).CombinedOutput(); err != nil {
			tb.Fatalf("ssh-keygen: %v\n%s", err, out)
		}
	}
	public, err := os.ReadFile(s.path("host.pub"))
	if err != nil {
		tb.Fatal(err)
	}
	WriteFile(tb, s.path("known"), "h "+string(public))
	if os.Getuid() == 0 {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // sshd's chroot, which its package's service makes
			tb.Fatal(err)
		}
	}
	config := WriteFile(tb, s.path("config"), strings.Join([]string{
		"HostKey " + s.path("host"), "AuthorizedKeysFile " + s.path("user.pub"), "StrictModes no", "UsePAM no", "PidFile none",
		"PermitRootLogin prohibit-password", "PasswordAuthentication no", "KbdInteractiveAuthentication no",
		"PrintMotd no", "PrintLastLog no", "UseDNS no", "LoginGraceTime 60", "LogLevel ERROR", "",
	}, "\n"))
	s.Addr = Serve(tb, func(c *net.TCPConn) { serveSSH(tb, sshd, config, c) })
	return s
}

// serveSSH runs sshd for one connection: it takes no port that is chosen for it,
// but with -i it serves what we accept.
func serveSSH(tb testing.TB, sshd, config string, c *net.TCPConn) {
	f, err := c.File()
	_ = c.Close()
	if err != nil {
		return
	}
	defer f.Close()
	cmd := exec.Command(sshd, "-i", "-e", "-f", config)
	cmd.Stdin, cmd.Stdout = f, f
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.WaitDelay = time.Second // a shell that was left behind may hold stderr
	EndWithParent(cmd, syscall.SIGKILL)
	if err := cmd.Run(); stderr.Len() > 0 {
		tb.Logf("sshd: %v: %s", err, &stderr)
	}
}

func (s *SSHD) path(name string) string { return filepath.Join(s.dir, name) }

// Command returns an ssh to the server through dialback connect: to the service
// ssh of a host, at the relay with that URL. flags are ssh's, before the
// destination; remote is what to run there.
func (s *SSHD) Command(tb testing.TB, relay, host string, flags []string, remote ...string) *exec.Cmd {
	tb.Helper()
	me, err := user.Current()
	if err != nil {
		tb.Fatal(err)
	}
	args := append([]string{}, flags...)
	args = append(args, "-F", "none", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-i", s.path("user"),
		"-o", "StrictHostKeyChecking=yes", "-o", "UserKnownHostsFile="+s.path("known"), "-o", "GlobalKnownHostsFile=none",
		"-o", fmt.Sprintf("ProxyCommand='%s' connect --relay %s --id %s --service ssh", Program, relay, host),
		me.Username+"@h")
	cmd := exec.Command(s.ssh, append(args, remote...)...)
	cmd.Env = append(os.Environ(), "SSH_AUTH_SOCK=")
	return cmd
}
