//go:build linux

package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/dialback/dialback/internal/proctest"
)

const (
	sshSize = 4 << 20 // of one transfer
	sshPart = 64 << 10
	sshPace = 50 * time.Millisecond
)

// ssh sends a file through a real ssh, and wants it back to the last byte if ssh
// ends well.
func (c *clients) ssh(m *member) {
	begun := time.Now()
	cmd := c.w.sshd.Command(c.w.t, c.w.balancer.URL, m.id, []string{"-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"}, "cat")
	var stderr strings.Builder
	var got bytes.Buffer
	cmd.Stdout, cmd.Stderr = &got, &stderr
	cmd.WaitDelay = 5 * time.Second // dialback connect ends after ssh, and has its stderr
	proctest.EndWithParent(cmd, 9)
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		c.w.ledger.add(kindSSH, m.id, begun, err.Error())
		return
	}
	sent := c.sendPaced(in)
	end := time.AfterFunc(2*proctest.Patience, func() { _ = cmd.Process.Kill() })
	err = cmd.Wait()
	if end.Stop(); errors.Is(err, exec.ErrWaitDelay) {
		err = nil // ssh itself ended well
	}
	if !bytes.HasPrefix(pattern, got.Bytes()) {
		c.w.ledger.violate(ruleBytes, "ssh to %s: the %d bytes that came back are not those that were sent", m.id, got.Len())
	}
	switch {
	case err == nil && got.Len() != sent:
		c.w.ledger.violate(ruleTruncated, "ssh to %s: %d bytes of %d, with a clean end", m.id, got.Len(), sent)
	case err == nil:
		c.w.ledger.add(kindSSH, m.id, begun, "")
	default:
		c.w.ledger.add(kindSSH, m.id, begun, sshReason(err, stderr.String()))
	}
}

// sendPaced sends what it can until the clients end.
func (c *clients) sendPaced(in io.WriteCloser) (sent int) {
	defer in.Close()
	for sent < sshSize && c.ctx.Err() == nil {
		n, err := in.Write(pattern[sent : sent+sshPart])
		sent += n
		if err != nil {
			return sent
		}
		time.Sleep(sshPace)
	}
	return sent
}

// sshReason is the reason that dialback connect said, in the words of reasonOf,
// or else that of ssh.
func sshReason(err error, stderr string) string {
	for line := range strings.Lines(stderr) {
		_, said, ok := strings.Cut(strings.TrimSpace(line), "dialback connect: ")
		switch i := strings.LastIndexByte(said, '('); {
		case !ok:
		case strings.HasSuffix(said, ")") && i >= 0:
			return "close " + said[i+1:len(said)-1]
		case strings.Contains(said, "was lost"), strings.Contains(said, "EOF"), strings.Contains(said, "reset by peer"):
			return "connection lost"
		default:
			return "dialback connect: " + said
		}
	}
	if strings.Contains(stderr, "timed out") || strings.Contains(stderr, "Timeout, server") {
		return "connection lost" // by ssh's own keepalive
	}
	return fmt.Sprint("ssh: ", err, ": ", stderr)
}
