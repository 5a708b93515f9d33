package agent_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/transport"
)

func TestDial_Refusals(t *testing.T) { synctest.Test(t, testDialRefusals) }
func testDialRefusals(t *testing.T) {
	r := newFakeRelay(t)
	var log eventLog
	cfg := r.config()
	cfg.Hooks = log.hooks()
	cfg.Hooks.Online = nil
	never := func(context.Context, string, string) (net.Conn, error) { t.Error("dialed"); return nil, net.ErrClosed }
	cfg.Services = map[string]agent.Handler{
		"":     agent.ForwardTCPWith("local:22", agent.TCPOptions{DialContext: r.net.DialContext}),
		"slow": slowTCP(nil),
		"web":  agent.ForwardHTTPWith("http://local:80", agent.HTTPOptions{DialContext: never}),
		"none": agent.ForwardTCPWith("no.such.name:22", agent.TCPOptions{DialContext: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "no.such.name", IsNotFound: true}}
		}}),
	}
	a := run(t, cfg)
	c := r.next(5)
	for i, tt := range []struct {
		dial   transport.StreamDial
		status int
		reason string
	}{
		{transport.StreamDial{Service: "nope"}, 404, `unknown service "nope"`},
		{transport.StreamDial{Service: "web"}, 502, `service "web" speaks http, not "raw"`},
		{transport.StreamDial{Proto: "http"}, 502, `service "" speaks raw, not "http"`},
		{transport.StreamDial{Proto: "quic"}, 502, `service "" speaks raw, not "quic"`},
		{transport.StreamDial{Kind: "ws"}, 502, `unsupported kind "ws"`},
		{transport.StreamDial{Kind: "http"}, 502, `unsupported kind "http"`},
		{transport.StreamDial{Kind: "of a later version"}, 502, `unsupported kind "of a later version"`},
		{transport.StreamDial{}, 502, "service down: connection refused"},
		{transport.StreamDial{Service: "none"}, 502, `service "none" down: unknown name`},
		{transport.StreamDial{Service: "slow"}, 502, `service "slow" down: timed out`},
	} {
		tt.dial.Ticket = fmt.Sprint(i)
		began := time.Now()
		c.dial(tt.dial)
		c.want(transport.Refuse{Ticket: tt.dial.Ticket, Status: tt.status, Reason: tt.reason})
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("%s: refused after %v", tt.reason, d)
		}
		log.want(t, fmt.Sprintf("refused %d %d %s", i, tt.status, tt.reason))
		log.events = nil
	}
	if st := a.Stats(); st.Refused != 10 || st.StreamsOpened != 0 {
		t.Errorf("Stats: %+v", st)
	}
}

// Invariant I1: a dial that was sent to a retired socket is not served, even if
// it arrives late.
func TestDial_OtherGenerationIsRefused(t *testing.T) {
	synctest.Test(t, testDialOtherGenerationIsRefused)
}
func testDialOtherGenerationIsRefused(t *testing.T) {
	r := newFakeRelay(t)
	r.pongs = true
	run(t, r.config())
	old := r.next(20)
	old.send(transport.Drain{})
	c := r.bare()
	old.dial(transport.StreamDial{Ticket: "served"}) // nobody has told of another one
	r.stream()
	// A relay whose clock went back hands out a lower generation: the newest
	// counts, not the highest.
	c.hello(10)
	synctest.Wait()
	for _, g := range []uint64{20, 9, 11, 0} {
		ticket := fmt.Sprint(g)
		c.send(withDefaults(transport.StreamDial{Ticket: ticket, Generation: g}))
		c.want(transport.Ack{Ticket: ticket})
		c.want(transport.Refuse{Ticket: ticket, Status: 503, Reason: "dial of another generation"})
	}
	c.dial(transport.StreamDial{Ticket: "t"})
	r.stream()
}

// A hello on a socket that has been left behind changes nothing.
func TestDial_LateHelloOfOldSocket(t *testing.T) { synctest.Test(t, testDialLateHelloOfOldSocket) }
func testDialLateHelloOfOldSocket(t *testing.T) {
	r := newFakeRelay(t)
	cfg := r.config()
	cfg.Services["slow"] = slowTCP(nil)
	run(t, cfg)
	old := r.bare()
	old.dial(transport.StreamDial{Ticket: "keeps the old socket open", Service: "slow"})
	old.send(transport.Drain{})
	c := r.bare()
	c.hello(2)
	synctest.Wait()
	old.hello(1)
	synctest.Wait()
	c.dial(transport.StreamDial{Ticket: "t"})
	r.stream()
}

func TestDial_Cancel(t *testing.T) { synctest.Test(t, testDialCancel) }
func testDialCancel(t *testing.T) {
	r := newFakeRelay(t)
	var log eventLog
	cfg := r.config()
	cfg.Hooks = log.hooks()
	cfg.Hooks.Online = nil
	cfg.MaxStreams = 1
	ended := make(chan struct{})
	cfg.Services["slow"] = agent.ForwardTCPWith("local:22", agent.TCPOptions{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	}})
	a := run(t, cfg)
	c := r.next(1)

	// While the service is being dialed.
	began := time.Now()
	c.dial(transport.StreamDial{Ticket: "a", Service: "slow"})
	c.send(transport.Cancel{Ticket: "a"})
	<-ended
	synctest.Wait()
	if time.Since(began) != 0 {
		t.Error("a canceled dial went on")
	}

	// While the dial-back is on.
	gone := make(chan struct{})
	r.refuseWith(func(_ http.ResponseWriter, req *http.Request) bool {
		<-req.Context().Done()
		close(gone)
		return true
	})
	c.dial(transport.StreamDial{Ticket: "b"})
	synctest.Wait()
	c.send(transport.Cancel{Ticket: "b"})
	<-gone
	synctest.Wait()
	if time.Since(began) != 0 {
		t.Error("a canceled dial-back went on")
	}
	r.refuseWith(nil)

	// After it, and of what was never dialed: no effect.
	c.dial(transport.StreamDial{Ticket: "c"})
	s := r.stream()
	c.send(transport.Cancel{Ticket: "c"})
	c.send(transport.Cancel{Ticket: "?"})
	synctest.Wait()
	s.write("x")
	s.wantMessage("x")
	log.want(t, "opened c")
	if st := a.Stats(); st.Streams != 1 || st.Refused != 0 || st.DialsFailed != 0 {
		t.Errorf("Stats: %+v; a canceled dial is neither a refusal nor a failure", st)
	}
}

// A relay that does not want the ticket any more knows why; one that cannot be
// reached is told, so that no client waits for the full timer.
func TestDial_DialBackFails(t *testing.T) { synctest.Test(t, testDialDialBackFails) }
func testDialDialBackFails(t *testing.T) {
	r := newFakeRelay(t)
	r.pongs = true
	var log eventLog
	cfg := r.config()
	cfg.Hooks = log.hooks()
	cfg.Hooks.Online = nil
	a := run(t, cfg)
	c := r.next(1)

	r.refuseWith(func(w http.ResponseWriter, req *http.Request) bool { http.NotFound(w, req); return true })
	c.dial(transport.StreamDial{Ticket: "unknown"})
	log.want(t, "failed unknown")

	r.refuseWith(func(_ http.ResponseWriter, req *http.Request) bool { <-req.Context().Done(); return true })
	began := time.Now()
	c.dial(transport.StreamDial{Ticket: "mute"})
	c.want(transport.Refuse{Ticket: "mute", Status: 502, Reason: "dial-back failed"})
	if d := time.Since(began); d != 10*time.Second {
		t.Errorf("refused after %v, want the HandshakeTimeout of 10s", d)
	}
	log.want(t, "failed unknown", "refused mute 502 dial-back failed", "failed mute")

	// "Connected" before the relay has accepted: it refuses after the 101.
	r.refuseWith(nil)
	c.dial(transport.StreamDial{Ticket: "late"})
	s := receive(t, r.dialed, "a dial-back")
	s.Close(transport.CloseUnknown, "unknown ticket")
	<-s.Done()
	synctest.Wait()
	if st := a.Stats(); st.DialsFailed != 2 || st.Streams != 0 {
		t.Errorf("Stats: %+v", st)
	}
}

func TestDial_RepeatedTicketIsOneDial(t *testing.T) {
	synctest.Test(t, testDialRepeatedTicketIsOneDial)
}
func testDialRepeatedTicketIsOneDial(t *testing.T) {
	r := newFakeRelay(t)
	cfg := r.config()
	release := make(chan struct{})
	cfg.Services = map[string]agent.Handler{"": slowTCP(release)}
	run(t, cfg)
	c := r.next(1)
	c.dial(transport.StreamDial{Ticket: "t"})
	c.dial(transport.StreamDial{Ticket: "t"})
	synctest.Wait()
	close(release)
	c.want(transport.Refuse{Ticket: "t", Status: 502, Reason: "service down: connection refused"})
	time.Sleep(time.Minute)
	for len(c.frames) > 0 {
		if f, ok := (<-c.frames).(transport.Refuse); ok {
			t.Errorf("another answer to the same ticket: %v", f)
		}
	}
}

func TestDial_MaxStreams(t *testing.T) { synctest.Test(t, testDialMaxStreams) }
func testDialMaxStreams(t *testing.T) {
	r := newFakeRelay(t)
	cfg := r.config()
	cfg.MaxStreams = 2
	release := make(chan struct{})
	cfg.Services["slow"] = slowTCP(release)
	run(t, cfg)
	c := r.next(1)
	c.dial(transport.StreamDial{Ticket: "a"})
	s := r.stream()
	c.dial(transport.StreamDial{Ticket: "b", Service: "slow"}) // a dial in flight counts
	c.dial(transport.StreamDial{Ticket: "c"})
	c.want(transport.Refuse{Ticket: "c", Status: 429, Reason: "limit of 2 streams reached"})
	close(release)
	c.want(transport.Refuse{Ticket: "b", Status: 502, Reason: `service "slow" down: connection refused`})
	c.dial(transport.StreamDial{Ticket: "d"})
	r.stream()
	c.dial(transport.StreamDial{Ticket: "e"})
	c.want(transport.Refuse{Ticket: "e", Status: 429, Reason: "limit of 2 streams reached"})
	s.Close(transport.CloseNormal, "")
	<-s.Done()
	synctest.Wait()
	c.dial(transport.StreamDial{Ticket: "f"})
	r.stream()
}

// A relay that dials without end makes no goroutines without end.
func TestDial_FloodIsBounded(t *testing.T) { synctest.Test(t, testDialFloodIsBounded) }
func testDialFloodIsBounded(t *testing.T) {
	r := newFakeRelay(t)
	cfg := r.config()
	cfg.MaxStreams = 10
	cfg.Services = map[string]agent.Handler{"": agent.ForwardTCPWith("local:22", agent.TCPOptions{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})}
	run(t, cfg)
	c := r.next(1)
	for i := range 500 {
		c.send(withDefaults(transport.StreamDial{Ticket: fmt.Sprint(i), Generation: 1}))
	}
	synctest.Wait()
	refused := 0
	for len(c.frames) > 0 {
		if f, ok := (<-c.frames).(transport.Refuse); ok && f.Status == 429 {
			refused++
		}
	}
	if refused != 490 {
		t.Errorf("%d of 500 dials were refused with 429, want 490", refused)
	}
}

// The loss of the control socket ends no stream and no dial in flight.
func TestDial_OutlivesItsControlSocket(t *testing.T) {
	synctest.Test(t, testDialOutlivesItsControlSocket)
}
func testDialOutlivesItsControlSocket(t *testing.T) {
	r := newFakeRelay(t)
	run(t, r.config())
	c := r.next(1)
	c.dial(transport.StreamDial{Ticket: "a"})
	s := r.stream()
	release := make(chan struct{})
	r.refuseWith(func(_ http.ResponseWriter, req *http.Request) bool {
		if req.URL.Query().Has("ticket") {
			<-release
		}
		return false
	})
	c.dial(transport.StreamDial{Ticket: "b"})
	c.Close(transport.CloseReplaced, "replaced")
	<-c.done
	r.next(2)
	close(release)
	for _, s := range []*fakeStream{s, r.stream()} {
		s.write("still here")
		s.wantMessage("still here")
	}
}

// Handlers that do not return hold Run up for StopTimeout at most; a panic in
// one ends its stream.
func TestRaw_PanicAndHang(t *testing.T) { synctest.Test(t, testRawPanicAndHang) }
func testRawPanicAndHang(t *testing.T) {
	r := newFakeRelay(t)
	cfg := r.config()
	release := make(chan struct{})
	cfg.Services = map[string]agent.Handler{
		"panic": agent.Raw(func(context.Context, *agent.Stream) { panic("oops") }),
		"hang": agent.Raw(func(ctx context.Context, s *agent.Stream) {
			if info, ok := agent.StreamInfoFrom(ctx); !ok || info != s.Info() || info.Service != "hang" || info.ID != "s-h" {
				t.Errorf("StreamInfo %v, %v; of the stream %v", info, ok, s.Info())
			}
			<-release
		}),
	}
	a := run(t, cfg)
	c := r.next(1)
	c.dial(transport.StreamDial{Ticket: "p", Service: "panic"})
	r.stream().wantEnd(transport.CloseInternal, "handler panicked")
	c.dial(transport.StreamDial{Ticket: "h", Service: "hang"})
	s := r.stream()
	began := time.Now()
	_ = a.stop()
	s.wantEnd(transport.CloseGoingAway, "agent stopping")
	if d := time.Since(began); d != 5*time.Second {
		t.Errorf("Run took %v to stop, want StopTimeout", d)
	}
	close(release)
}

// StopTimeout is one bound for handlers and hooks together.
func TestRun_HangingHandlerAndHook(t *testing.T) { synctest.Test(t, testRunHangingHandlerAndHook) }
func testRunHangingHandlerAndHook(t *testing.T) {
	r := newFakeRelay(t)
	cfg := r.config()
	release := make(chan struct{})
	cfg.Services[""] = agent.Raw(func(context.Context, *agent.Stream) { <-release })
	cfg.Hooks.StreamOpened = func(agent.StreamInfo) { <-release }
	a := run(t, cfg)
	r.next(1).dial(transport.StreamDial{Ticket: "t"})
	r.stream()
	synctest.Wait()
	returned := make(chan struct{})
	began := time.Now()
	go func() {
		_ = a.stop()
		close(returned)
	}()
	select {
	case <-returned:
	case <-time.After(time.Hour):
		t.Error("Run has not returned within an hour, want StopTimeout")
	}
	if d := time.Since(began); d != 5*time.Second {
		t.Errorf("Run took %v to stop, want StopTimeout", d)
	}
	close(release)
	<-returned
}

// A DialContext that panics costs its stream, not the process.
func TestDial_DialContextPanics(t *testing.T) { synctest.Test(t, testDialDialContextPanics) }
func testDialDialContextPanics(t *testing.T) {
	r := newFakeRelay(t)
	cfg := r.config()
	cfg.Services["panic"] = agent.ForwardTCPWith("local:22", agent.TCPOptions{DialContext: func(context.Context, string, string) (net.Conn, error) {
		panic("oops")
	}})
	run(t, cfg)
	c := r.next(1)
	c.dial(transport.StreamDial{Ticket: "t1", Service: "panic"})
	c.want(transport.Refuse{Ticket: "t1", Status: 502, Reason: "service failed"})
	s := c.spare("t2")
	s.open(transport.StreamOpen{Stream: "a", Service: "panic"}, "bytes")
	s.wantFrame(transport.Refuse{Status: 502, Reason: "service failed"})
	c.dial(transport.StreamDial{Ticket: "t3"}) // the agent lives
	r.stream()
}

// A first try that hangs leaves time for a second one.
func TestDial_DialBackHangsOnce(t *testing.T) { synctest.Test(t, testDialDialBackHangsOnce) }
func testDialDialBackHangsOnce(t *testing.T) {
	r := newFakeRelay(t)
	r.pongs = true
	run(t, r.config())
	c := r.next(1)
	var tries atomic.Int32
	r.refuseWith(func(_ http.ResponseWriter, req *http.Request) bool {
		if tries.Add(1) > 1 {
			return false
		}
		<-req.Context().Done()
		return true
	})
	c.dial(transport.StreamDial{Ticket: "t"})
	s := r.stream()
	s.write("x")
	s.wantMessage("x")
	if n := tries.Load(); n != 2 {
		t.Errorf("the data socket came with try %d, want 2", n)
	}
}
