package agent_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/transport"
)

// pings counts the pings that have come, and drops all other frames.
func (c *fakeControl) pings() int {
	synctest.Wait()
	n := 0
	for {
		select {
		case f := <-c.frames:
			if _, ok := f.(transport.Ping); ok {
				n++
			}
		default:
			return n
		}
	}
}

func TestControl_PingsAtOnceAndEachInterval(t *testing.T) {
	synctest.Test(t, testControlPingsAtOnceAndEachInterval)
}
func testControlPingsAtOnceAndEachInterval(t *testing.T) {
	r := newFakeRelay(t)
	run(t, r.config())
	c := r.bare()
	if n := c.pings(); n != 1 {
		t.Errorf("%d pings at once, want 1", n)
	}
	time.Sleep(30*time.Second - time.Nanosecond)
	if n := c.pings(); n != 0 {
		t.Errorf("%d pings before the interval is over, want none", n)
	}
	time.Sleep(time.Nanosecond)
	if n := c.pings(); n != 1 {
		t.Errorf("%d pings after 30s, want 1", n)
	}
}

// A relay that never answered must not be punished for it: else every host
// would reconnect for ever while versions differ.
func TestControl_KeepsRelayThatNeverPongs(t *testing.T) {
	synctest.Test(t, testControlKeepsRelayThatNeverPongs)
}
func testControlKeepsRelayThatNeverPongs(t *testing.T) {
	r := newFakeRelay(t)
	a := run(t, r.config())
	c := r.bare()
	time.Sleep(24 * time.Hour)
	if !c.isOpen() || a.Stats().Connects != 1 {
		t.Error("a relay that never answered a ping was left")
	}
	if n, want := c.pings(), 24*60*2+1; n != want {
		t.Errorf("%d pings in a day, want %d", n, want)
	}
}

// A relay that knows the ping says so in its handshake. If nothing follows, the
// process behind the connection has frozen, or is gone, and something in
// between keeps the connection.
func TestControl_LeavesRelayThatNeverSaidHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRelay(t)
		r.subprotocol = transport.Subprotocol
		a := run(t, r.config())
		c := r.bare()
		time.Sleep(75*time.Second - time.Nanosecond)
		synctest.Wait()
		if !c.isOpen() || a.Stats().Online {
			t.Fatalf("1ns before 75s of silence were over: open %v, online %v; want open and not online", c.isOpen(), a.Stats().Online)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if c.isOpen() {
			t.Fatal("kept after 75s of silence")
		}
		r.bare().send(transport.Hello{Generation: 1})
		synctest.Wait()
		if !a.Stats().Online {
			t.Error("not online on the next socket")
		}
	})
}

func TestControl_LeavesRelayThatWentSilent(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer transport.Frame
	}{
		{"after a pong", transport.Pong{}},
		{"after a hello, which counts as a pong", transport.Hello{Generation: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFakeRelay(t)
				a := run(t, r.config())
				c := r.bare()
				c.send(tt.answer)
				synctest.Wait()
				if !a.Stats().Online {
					t.Error("not online after the relay has confirmed the socket")
				}
				time.Sleep(10 * time.Second)
				// Any text frame is a sign of life; nothing else is.
				c.text(`{"type":"of a later version"}`)
				time.Sleep(75*time.Second - time.Nanosecond)
				if err := c.Write(transport.Binary, []byte(`{"type":"pong"}`)); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				if !c.isOpen() {
					t.Fatal("left 1ns before 75s of silence were over")
				}
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				if c.isOpen() {
					t.Fatal("kept after 75s of silence")
				}
				if a.Stats().Online {
					t.Error("still online")
				}
				left := time.Now()
				if c := r.bare(); c.at.Sub(left) != 500*time.Millisecond {
					t.Errorf("reconnected after %v, want the full jitter of 500ms", c.at.Sub(left))
				}
			})
		})
	}
}

// The relay's protocol pongs and pings may be an edge's: they are no sign of
// life (report B).
func TestControl_ProtocolPingIsNoSignOfLife(t *testing.T) {
	synctest.Test(t, testControlProtocolPingIsNoSignOfLife)
}
func testControlProtocolPingIsNoSignOfLife(t *testing.T) {
	r := newFakeRelay(t)
	run(t, r.config())
	c := r.next(1)
	for range 7 {
		time.Sleep(10 * time.Second)
		if err := c.Ping(t.Context()); err != nil {
			t.Fatalf("the agent does not answer a protocol ping: %v", err)
		}
	}
	time.Sleep(5 * time.Second)
	synctest.Wait()
	if c.isOpen() {
		t.Error("protocol pings kept the control socket after 75s without a text frame")
	}
}

func TestControl_JunkIsDropped(t *testing.T) { synctest.Test(t, testControlJunkIsDropped) }
func testControlJunkIsDropped(t *testing.T) {
	r := newFakeRelay(t)
	run(t, r.config())
	c := r.next(1)
	junk := []string{"", "{", "null", "[]", `"x"`, `{"type":5}`, `{"type":"stream:dial"`, strings.Repeat("[", 30000),
		`{"op":{}}`, `{"type":"stream:dial"}`, `{"type":"stream:dial","ticket":"","kind":"tcp"}`, `{"type":"stream:cancel"}`,
		`{"type":"nonsense","a":[1,2,3]}`, `{"type":"ping"}`, `{"type":"stream:eof"}`, `{"type":"drain","reconnectAfterMs":"soon"}`}
	for _, s := range junk {
		c.text(s)
		if err := c.Write(transport.Binary, []byte(s)); err != nil {
			t.Fatalf("after %.20q: %v", s, err)
		}
	}
	c.dial(transport.StreamDial{Ticket: "t"})
	s := r.stream()
	s.write("x")
	s.wantMessage("x")
}

func TestControl_FrameAboveLimitEndsTheSocket(t *testing.T) {
	synctest.Test(t, testControlFrameAboveLimitEndsTheSocket)
}
func testControlFrameAboveLimitEndsTheSocket(t *testing.T) {
	r := newFakeRelay(t)
	run(t, r.config())
	c := r.next(1)
	c.text(strings.Repeat(" ", transport.MaxControlFrame))
	synctest.Wait()
	if !c.isOpen() {
		t.Fatal("a frame of 64 KiB ended the control socket")
	}
	c.text(strings.Repeat(" ", transport.MaxControlFrame+1))
	if ce := c.ended(); ce.Code != transport.CloseTooBig {
		t.Errorf("a frame above 64 KiB ended the socket with %v, want 1009", ce)
	}
	r.next(2)
}

// A peer that has vanished answers no close handshake, and takes no bytes.
func TestControl_BlackholeIsLeftWithoutCloseHandshake(t *testing.T) {
	synctest.Test(t, testControlBlackholeIsLeftWithoutCloseHandshake)
}
func testControlBlackholeIsLeftWithoutCloseHandshake(t *testing.T) {
	r := newFakeRelay(t)
	cfg := r.config()
	cfg.WriteTimeout = time.Hour // so that a ping is still being written
	a := run(t, cfg)
	r.next(1)
	synctest.Wait()
	frozen := time.Now()
	r.freeze()
	next := r.bare()
	if d, want := next.at.Sub(frozen), 75*time.Second+500*time.Millisecond; d != want {
		t.Errorf("reconnected %v after the freeze, want silence and delay: %v", d, want)
	}
	next.hello(2)
	synctest.Wait()
	r.freeze()
	frozen = time.Now()
	if err := a.stop(); err != context.Canceled {
		t.Errorf("Run: %v", err)
	}
	if d := time.Since(frozen); d != time.Second {
		t.Errorf("Run took %v to stop over a blackhole, want the CloseTimeout of 1s", d)
	}
}

// A write that makes no progress ends the socket sooner than silence does.
func TestControl_StalledWriteEndsTheSocket(t *testing.T) {
	synctest.Test(t, testControlStalledWriteEndsTheSocket)
}
func testControlStalledWriteEndsTheSocket(t *testing.T) {
	r := newFakeRelay(t)
	run(t, r.config())
	c := r.next(1)
	c.Conn.CloseNow()
	<-c.done
	r.next(2)
	synctest.Wait()
	began := time.Now()
	r.freeze()
	next := r.bare()
	if d, want := next.at.Sub(began), 30*time.Second+5*time.Second+500*time.Millisecond; d != want {
		t.Errorf("reconnected %v after the freeze, want ping, write timeout and delay: %v", d, want)
	}
}

func TestControl_HandshakeNeverAnswered(t *testing.T) {
	synctest.Test(t, testControlHandshakeNeverAnswered)
}
func testControlHandshakeNeverAnswered(t *testing.T) {
	r := newFakeRelay(t)
	cfg := r.config()
	cfg.RelayURL = "http://mute:80"
	mute, err := r.net.Listen("mute:80")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	began := time.Now()
	a := run(t, cfg)
	for i, want := range []time.Duration{0, 10*time.Second + 500*time.Millisecond, 21*time.Second + 500*time.Millisecond} {
		conn, err := mute.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if d := time.Since(began); d != want {
			t.Errorf("attempt %d after %v, want %v: 10s for a handshake, then the backoff", i+1, d, want)
		}
	}
	_ = a.stop()
}

func TestControl_DrainOverlaps(t *testing.T) { synctest.Test(t, testControlDrainOverlaps) }
func testControlDrainOverlaps(t *testing.T) {
	r := newFakeRelay(t)
	var log eventLog
	cfg := r.config()
	cfg.Hooks = log.hooks()
	r.pongs = true
	a := run(t, cfg)

	old := r.next(1)
	old.dial(transport.StreamDial{Ticket: "before"})
	s := r.stream()
	told := time.Now()
	old.send(transport.Drain{ReconnectAfterMs: 2500})
	old.send(transport.Drain{ReconnectAfterMs: 9000}) // told already
	c := r.bare()
	if d := c.at.Sub(told); d != 2500*time.Millisecond {
		t.Errorf("the successor came after %v, want 2.5s", d)
	}
	if c.query.Get("seq") != "2" || c.query.Get("instance") != old.query.Get("instance") {
		t.Errorf("the successor's query is %v", c.query)
	}
	// Until the successor has its hello the old socket serves.
	time.Sleep(5 * time.Second)
	old.dial(transport.StreamDial{Ticket: "between"})
	s2 := r.stream()
	if !old.isOpen() {
		t.Fatal("the draining socket was closed before its successor was confirmed")
	}
	synctest.Wait()
	c.hello(2)
	if ce := old.ended(); ce.Code != transport.CloseNormal || !ce.Remote {
		t.Errorf("the draining socket ended with %v, want 1000", ce)
	}
	for _, s := range []*fakeStream{s, s2} {
		s.write("still here")
		s.wantMessage("still here")
	}
	c.dial(transport.StreamDial{Ticket: "after"})
	r.stream()
	time.Sleep(time.Minute)
	synctest.Wait()
	if a.Stats().Connects != 2 {
		t.Errorf("%d attempts, want 2: the old socket's end changes nothing", a.Stats().Connects)
	}
	log.want(t, "online 1", "opened before", "opened between", "online 2", "opened after")
}

// A relay closes the predecessor as replaced, perhaps before the agent has read
// the hello: that must not be taken for another agent.
func TestControl_ReplacedByItsOwnSuccessor(t *testing.T) {
	synctest.Test(t, testControlReplacedByItsOwnSuccessor)
}
func testControlReplacedByItsOwnSuccessor(t *testing.T) {
	r := newFakeRelay(t)
	r.pongs = true
	a := run(t, r.config())
	old := r.next(1)
	for g := uint64(2); g < 8; g++ {
		old.send(transport.Drain{})
		c := r.bare()
		old.Close(transport.CloseReplaced, "replaced")
		<-old.done
		c.hello(g)
		old = c
	}
	time.Sleep(10 * time.Minute)
	if n := a.Stats().Connects; n != 7 {
		t.Errorf("%d attempts, want 7: 4409 on a socket that is not the newest is ignored", n)
	}
}

// The old socket's dials in flight are answered before it is closed.
func TestControl_DrainWaitsForDialsInFlight(t *testing.T) {
	synctest.Test(t, testControlDrainWaitsForDialsInFlight)
}
func testControlDrainWaitsForDialsInFlight(t *testing.T) {
	r := newFakeRelay(t)
	cfg := r.config()
	release := make(chan struct{})
	cfg.Services = map[string]agent.Handler{"": slowTCP(release)}
	run(t, cfg)
	old := r.next(1)
	old.dial(transport.StreamDial{Ticket: "t"})
	old.send(transport.Drain{})
	r.next(2)
	time.Sleep(4 * time.Second)
	synctest.Wait()
	if !old.isOpen() {
		t.Fatal("the draining socket was closed with a dial in flight")
	}
	close(release)
	old.want(transport.Refuse{Ticket: "t", Status: 502, Reason: "service down: connection refused"})
	if ce := old.ended(); ce.Code != transport.CloseNormal {
		t.Errorf("the draining socket ended with %v, want 1000", ce)
	}
}

// A dial that comes on a retired socket while an earlier one is in flight is
// refused, also of a relay that gave the successor the same generation; the
// earlier one is answered as ever.
func TestControl_RetiredSocketTakesNoDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRelay(t)
		cfg := r.config()
		release := make(chan struct{})
		cfg.Services["slow"] = slowTCP(release)
		run(t, cfg)
		old := r.next(1)
		old.dial(transport.StreamDial{Ticket: "t", Service: "slow"})
		old.send(transport.Drain{})
		c := r.next(1)
		synctest.Wait()
		old.dial(transport.StreamDial{Ticket: "late"})
		old.want(transport.Refuse{Ticket: "late", Status: 503, Reason: "dial on a retired control socket"})
		close(release)
		old.want(transport.Refuse{Ticket: "t", Status: 502, Reason: `service "slow" down: connection refused`})
		if ce := old.ended(); ce.Code != transport.CloseNormal {
			t.Errorf("the draining socket ended with %v, want 1000", ce)
		}
		c.dial(transport.StreamDial{Ticket: "next"})
		r.stream()
	})
}

// The refusal of a spare that cannot be dialed goes out before its socket retires.
func TestControl_DrainWaitsForSparesInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRelay(t)
		run(t, r.config())
		old := r.next(1)
		r.refuseWith(func(w http.ResponseWriter, req *http.Request) bool {
			if req.URL.Path != "/some/prefix/v2/dial" {
				return false
			}
			time.Sleep(time.Second)
			w.WriteHeader(http.StatusBadGateway)
			return true
		})
		old.dial(transport.StreamDial{Ticket: "t", Kind: transport.KindSpare})
		old.send(transport.Drain{})
		r.next(2)
		old.want(transport.Refuse{Ticket: "t", Status: 502, Reason: "dial-back failed"})
		if ce := old.ended(); ce.Code != transport.CloseNormal {
			t.Errorf("the draining socket ended with %v, want 1000", ce)
		}
	})
}

// Dials of a relay that sends them while their socket retires must not bring
// the process down.
func TestControl_DialsWhileRetiring(t *testing.T) {
	r := newFakeRelay(t)
	r.pongs = true
	cfg := r.config()
	cfg.Services = map[string]agent.Handler{"": agent.ForwardTCPWith("local:80", agent.TCPOptions{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED },
	})}
	run(t, cfg)
	old := r.next(1)
	for round := range 20 {
		old.send(transport.Drain{})
		next := r.bare()
		started := make(chan struct{})
		go sendDials(old, round, started)
		<-started
		next.hello(1)
		old = next
	}
}

// sendDials sends 200 dials, as far as the socket takes them, and closes
// started after some.
func sendDials(c *fakeControl, round int, started chan<- struct{}) {
	defer close(started)
	for i := range 200 {
		f := transport.Encode(withDefaults(transport.StreamDial{Ticket: fmt.Sprint(round, "-", i), Generation: 1}))
		if c.Write(transport.Text, f) != nil {
			return
		}
		if i == 5*round {
			started <- struct{}{}
		}
	}
}

// When a drained socket's relay is gone before the successor is due, the agent
// does not wait for that.
func TestControl_DrainCutShort(t *testing.T) { synctest.Test(t, testControlDrainCutShort) }
func testControlDrainCutShort(t *testing.T) {
	r := newFakeRelay(t)
	run(t, r.config())
	c := r.next(1)
	c.send(transport.Drain{ReconnectAfterMs: 60_000})
	time.Sleep(15 * time.Second)
	c.Close(transport.CloseRestart, "restarting")
	closed := time.Now()
	if d := r.next(2).at.Sub(closed); d != 500*time.Millisecond {
		t.Errorf("reconnected %v after the close, want 500ms", d)
	}
}
