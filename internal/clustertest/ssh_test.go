//go:build linux

package clustertest

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dialback/dialback/internal/proctest"
)

// transfer is one ssh that sends bytes and gets them back, for as long as it is
// not ended.
type transfer struct {
	t    *testing.T
	name string
	p    *proctest.Process
	sent hash.Hash
	got  *countingHash
	stop chan struct{}
	n    chan int64 // how much was sent, at the end
}

// startTransfer starts an ssh to the service ssh of a host through a relay, by
// dialback connect. It returns when the first bytes have come back.
func startTransfer(t *testing.T, s *proctest.SSHD, name, relay, host string) *transfer {
	t.Helper()
	cmd := s.Command(t, relay, host, nil, "cat")
	x := &transfer{
		t: t, name: name, sent: sha256.New(), got: &countingHash{Hash: sha256.New()},
		stop: make(chan struct{}), n: make(chan int64, 1),
	}
	cmd.Stdout = x.got
	x.p = proctest.Start(t, cmd)
	go x.send()
	proctest.Within(t, proctest.Patience, name+" moves bytes", func() bool {
		if x.p.HasEnded() {
			t.Fatalf("%s: ssh has ended: %s", name, x.p.Output())
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
		if _, err := x.p.Stdin.Write(b); err != nil {
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
	_ = x.p.Stdin.Close()
	x.n <- n
}

// end ends the transfer and checks that all of it came back.
func (x *transfer) end() {
	x.t.Helper()
	if x.p.HasEnded() {
		x.t.Errorf("%s: ssh ended by itself: %s", x.name, x.p.Output())
	}
	close(x.stop)
	n := <-x.n
	select {
	case <-x.p.Done():
	case <-time.After(proctest.Patience):
		x.t.Fatalf("%s: ssh has not ended: %s", x.name, x.p.Output())
	}
	if code := x.p.Cmd.ProcessState.ExitCode(); code != 0 {
		x.t.Errorf("%s: ssh ended with %d: %s", x.name, code, x.p.Output())
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
