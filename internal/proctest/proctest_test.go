package proctest_test

import (
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/dialback/dialback/internal/proctest"
)

func TestMain(m *testing.M) { os.Exit(proctest.RunTests(m)) }

func TestProcess_LinesAndOutput(t *testing.T) {
	p := proctest.Start(t, exec.Command(proctest.Program, "--help"))
	if l := p.Line(); !strings.HasPrefix(l, "usage: dialback") {
		t.Errorf("Line = %q, want the first line that was printed", l)
	}
	if code := p.Exit(); code != 0 {
		t.Errorf("Exit = %d, want 0", code)
	}
	if out := p.Output(); !strings.HasPrefix(out, "usage: dialback") {
		t.Errorf("Output = %q, want all that was printed, lines that were read too", out)
	}
	p.Kill() // of a process that is gone
}

// echo is a connection through a gate to a service that sends back what it gets.
func echo(t *testing.T, g *proctest.Gate) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", g.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(proctest.Patience))
	if err := ask(c, "first"); err != nil {
		t.Fatal(err)
	}
	return c
}

func ask(c net.Conn, s string) error {
	if _, err := io.WriteString(c, s); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, len(s)))
	return err
}

func newEchoGate(t *testing.T) *proctest.Gate {
	return proctest.NewGate(t, "127.0.0.1:0", "tcp", proctest.Serve(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) }))
}

// wantSilence checks that nothing comes for a moment.
func wantSilence(t *testing.T, why string, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := c.Read(make([]byte, 64)); !os.IsTimeout(err) {
		t.Errorf("%s: read %d bytes, %v; want silence", why, n, err)
	}
	_ = c.SetReadDeadline(time.Now().Add(proctest.Patience))
}

func TestGate_FreezeIsOfWhatThereIs(t *testing.T) {
	g := newEchoGate(t)
	old := echo(t, g)
	n, thaw, _ := g.Freeze()
	if n != 1 {
		t.Errorf("Freeze = %d connections, want 1", n)
	}
	if _, err := io.WriteString(old, "late"); err != nil {
		t.Fatal(err)
	}
	wantSilence(t, "a frozen connection", old)
	echo(t, g)
	thaw()
	if _, err := io.ReadFull(old, make([]byte, len("late"))); err != nil {
		t.Errorf("after thaw: %v, want what has waited", err)
	}

	_, _, cut := g.Freeze()
	if _, err := io.WriteString(old, "lost"); err != nil {
		t.Fatal(err)
	}
	wantSilence(t, "a frozen connection", old)
	cut()
	if n, err := old.Read(make([]byte, 64)); n > 0 || err == nil || os.IsTimeout(err) {
		t.Errorf("after cut: read %d bytes, %v; want a reset", n, err)
	}
	echo(t, g)
}

func TestGate_StallAndCut(t *testing.T) {
	g := newEchoGate(t)
	c := echo(t, g)
	g.SetStalled(true)
	if _, err := io.WriteString(c, "late"); err != nil {
		t.Fatal(err)
	}
	wantSilence(t, "a stalled gate", c)
	g.SetStalled(false)
	if _, err := io.ReadFull(c, make([]byte, len("late"))); err != nil {
		t.Errorf("after the stall: %v, want what has waited", err)
	}
	g.SetCut(true)
	if _, err := c.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("a connection through a cut gate: %v, want its end", err)
	}
	g.SetCut(false)
	echo(t, g)
}

func TestGate_CatchOne(t *testing.T) {
	g := newEchoGate(t)
	c := echo(t, g)
	held := g.Catch(proctest.HoldReply, "hold this")
	if _, err := io.WriteString(c, "hold this"); err != nil {
		t.Fatal(err)
	}
	held.Await(t)
	wantSilence(t, "a reply that is held", c)
	held.Release()
	if _, err := io.ReadFull(c, make([]byte, len("hold this"))); err != nil {
		t.Errorf("a reply that was released: %v", err)
	}
	if err := ask(c, "hold this"); err != nil {
		t.Errorf("the second request of that kind: %v; a catch is for one only", err)
	}
}

func TestStalls_Longest(t *testing.T) {
	at := time.Now().Add(-time.Hour)
	second := func(n int) time.Time { return at.Add(time.Duration(n) * time.Second) }
	s := &proctest.Stalls{}
	s.Add(proctest.Pause{From: second(10), To: second(11)}, proctest.Pause{From: second(20), To: second(23)})
	for _, tt := range []struct {
		name       string
		begin, end int
		want       time.Duration
	}{
		{"before all", 0, 10, 0},
		{"between", 11, 20, 0},
		{"the end of one", 10, 12, time.Second},
		{"the begin of one", 12, 21, 3 * time.Second},
		{"within one", 21, 22, 3 * time.Second},
		{"both", 0, 30, 3 * time.Second},
	} {
		if got := s.Longest(second(tt.begin), second(tt.end)); got != tt.want {
			t.Errorf("%s: Longest = %v, want %v", tt.name, got, tt.want)
		}
	}
	if n, longest := s.Total(); n != 2 || longest != 3*time.Second {
		t.Errorf("Total = %d, %v, want both and the longer one", n, longest)
	}
}
