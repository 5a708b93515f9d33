package agent_test

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/transport"
)

// spare has the agent dial a data socket in advance.
func (c *fakeControl) spare(ticket string) *fakeStream {
	c.relay.t.Helper()
	c.send(transport.StreamDial{Ticket: ticket, Kind: transport.KindSpare, Generation: c.generation})
	c.want(transport.Ack{Ticket: ticket})
	return receive(c.relay.t, c.relay.dialed, "a spare")
}

// open makes the spare a stream, with bytes that go along.
func (s *fakeStream) open(f transport.StreamOpen, bytes string) {
	s.relay.t.Helper()
	if f.Proto == "" {
		f.Proto = transport.ProtoRaw
	}
	if err := s.Write(transport.Text, transport.Encode(f)); err != nil {
		s.relay.t.Errorf("stream:open: %v", err)
	}
	s.write(bytes)
}

// wantFrame reads a text message.
func (s *fakeStream) wantFrame(want transport.Frame) {
	s.relay.t.Helper()
	typ, m, err := s.Reader()
	if err != nil {
		s.relay.t.Fatalf("the data socket ended with %v, want %#v", err, want)
	}
	p, _ := io.ReadAll(m)
	if f, err := transport.Decode(p); typ != transport.Text || err != nil || f != want {
		s.relay.t.Fatalf("on the data socket came %q, want %#v", p, want)
	}
}

// A spare says nothing until it is opened; it is no stream before that, and then
// like any other.
func TestSpare_BecomesAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRelay(t)
		a := run(t, r.config())
		c := r.next(7)
		s := c.spare("t1")
		time.Sleep(time.Minute)
		if st := a.Stats(); st.Streams != 0 || st.StreamsOpened != 0 {
			t.Errorf("a spare counts as a stream: %+v", st)
		}
		s.open(transport.StreamOpen{Stream: "s1"}, "hello")
		s.wantFrame(transport.Opened{})
		s.wantMessage("hello")
		if st := a.Stats(); st.Streams != 1 || st.StreamsOpened != 1 {
			t.Errorf("with the stream: %+v", st)
		}
		s.eof()
		s.wantMessage("EOF")
		s.wantEnd(transport.CloseNormal, "")
	})
}

// A stream is opened once: whatever of spare and dial comes second is refused,
// and none of its bytes reach the service. After
// SpareTimeout and a minute nobody remembers.
func TestSpare_StreamIsOpenedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRelay(t)
		r.pongs = true
		var served atomic.Int32
		cfg := r.config()
		cfg.Services[""] = agent.Raw(func(ctx context.Context, s *agent.Stream) {
			if n, _ := s.Read(make([]byte, 10)); n > 0 {
				served.Add(1)
			}
		})
		run(t, cfg)
		c := r.next(7)
		already := transport.Refuse{Status: 503, Reason: transport.ReasonAlreadyOpen}

		s := c.spare("t1")
		s.open(transport.StreamOpen{Stream: "a"}, "bytes")
		s.wantFrame(transport.Opened{})
		c.dial(transport.StreamDial{Ticket: "t2", Stream: "a"})
		c.want(transport.Refuse{Ticket: "t2", Status: already.Status, Reason: already.Reason})

		c.dial(transport.StreamDial{Ticket: "t3", Stream: "b"})
		r.stream().write("bytes")
		s = c.spare("t4")
		s.open(transport.StreamOpen{Stream: "b"}, "bytes")
		s.wantFrame(already)
		s.wantEnd(transport.CloseNormal, "")

		c.dial(transport.StreamDial{Ticket: "t5", Stream: "b"}) // issued anew: the relay has sent nothing on the first
		r.stream()

		synctest.Wait()
		if n := served.Load(); n != 2 {
			t.Errorf("%d streams brought bytes, want 2", n)
		}
		// The other way of opening it may be as late as a spare can be.
		time.Sleep(3 * time.Minute)
		c.dial(transport.StreamDial{Ticket: "t6", Stream: "a"})
		c.want(transport.Refuse{Ticket: "t6", Status: already.Status, Reason: already.Reason})
		time.Sleep(time.Minute)
		c.dial(transport.StreamDial{Ticket: "t7", Stream: "a"})
		r.stream()
	})
}

// A service that is not reached because Run ends is not down.
func TestSpare_RunEndsWhileTheServiceIsReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRelay(t)
		var log eventLog
		cfg := r.config()
		cfg.Services[""] = slowTCP(nil)
		cfg.Hooks.Refused = log.hooks().Refused
		a := run(t, cfg)
		s := r.next(7).spare("t1")
		s.open(transport.StreamOpen{Stream: "s-a"}, "bytes")
		synctest.Wait()
		a.stop()
		log.want(t, "refused a 503 agent stopping")
	})
}

// While a slow service is reached for both, the first one there has the stream.
func TestSpare_DialOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRelay(t)
		cfg := r.config()
		var dials, served atomic.Int32
		cfg.Services[""] = agent.ForwardTCPWith("local:22", agent.TCPOptions{DialContext: func(context.Context, string, string) (net.Conn, error) {
			if dials.Add(1) == 1 {
				time.Sleep(3 * time.Second)
			}
			near, far := net.Pipe()
			go func() {
				defer far.Close()
				b := make([]byte, 100)
				if n, _ := far.Read(b); n > 0 {
					served.Add(1)
					far.Write(b[:n])
				}
				io.Copy(io.Discard, far)
			}()
			return near, nil
		}})
		run(t, cfg)
		c := r.next(7)
		s := c.spare("t1")
		s.open(transport.StreamOpen{Stream: "a"}, "from the spare")
		time.Sleep(time.Second)
		c.dial(transport.StreamDial{Ticket: "t2", Stream: "a"})
		d := r.stream()
		d.write("from the dial")
		d.wantMessage("from the dial")
		s.wantFrame(transport.Refuse{Status: 503, Reason: transport.ReasonAlreadyOpen})
		if n := served.Load(); n != 1 {
			t.Errorf("%d connections to the service brought bytes, want 1", n)
		}
	})
}

// Invariant I1: a spare of another generation becomes no stream.
func TestSpare_OtherGenerationIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRelay(t)
		run(t, r.config())
		c := r.next(7)
		s := c.spare("t1")
		c.CloseNow()
		r.next(8)
		synctest.Wait()
		s.open(transport.StreamOpen{Stream: "a"}, "bytes")
		s.wantFrame(transport.Refuse{Status: 503, Reason: "spare of another generation"})
		s.wantEnd(transport.CloseNormal, "")
	})
}

func TestSpare_Refusals(t *testing.T) {
	tests := []struct {
		name string
		open string
		want transport.Frame // nil: the socket is closed
	}{
		{"unknown service", `{"type":"stream:open","stream":"a","service":"nope","proto":"raw"}`, transport.Refuse{Status: 404, Reason: `unknown service "nope"`}},
		{"other protocol", `{"type":"stream:open","stream":"a","proto":"http"}`, transport.Refuse{Status: 502, Reason: `service "" speaks raw, not "http"`}},
		{"another frame", `{"type":"stream:eof"}`, nil},
		{"no frame", `hello`, nil},
		{"no stream", `{"type":"stream:open","proto":"raw"}`, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFakeRelay(t)
				a := run(t, r.config())
				s := r.next(7).spare("t1")
				if err := s.Write(transport.Text, []byte(tt.open)); err != nil {
					t.Fatal(err)
				}
				if tt.want != nil {
					s.wantFrame(tt.want)
					s.wantEnd(transport.CloseNormal, "")
				} else {
					s.wantEnd(transport.CloseProtocolError, "a spare begins with stream:open")
				}
				if st := a.Stats(); st.StreamsOpened != 0 {
					t.Errorf("Stats: %+v", st)
				}
			})
		})
	}
}

// A spare that nobody opens ends after SpareTimeout, and with Run.
func TestSpare_EndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRelay(t)
		r.pongs = true
		a := run(t, r.config())
		c := r.next(7)
		start := time.Now()
		c.spare("t1").wantEnd(transport.CloseNormal, "a spare that nobody needed")
		if d := time.Since(start); d != 3*time.Minute {
			t.Errorf("a spare ended after %v, want 3 min", d)
		}
		s := c.spare("t2")
		synctest.Wait()
		a.stop()
		s.wantEnd(transport.CloseGoingAway, "agent stopping")
	})
}
