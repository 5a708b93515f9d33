package relay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/relaytest"
	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/memory"
	"github.com/dialback/dialback/store/storetest"
	"github.com/dialback/dialback/transport"
)

// I3: every failure is quick and says what happened.
func TestTruth_EveryFailureHasItsReason(t *testing.T) {
	tests := []struct {
		name   string
		host   *relaytest.HostConfig // nil: no such host
		status int
		code   string
		within time.Duration
	}{
		{"offline", nil, 503, "host_offline", 0},
		{"mute", &relaytest.HostConfig{}, 504, "no_dial_back", 10 * time.Second},
		{"gone while dialing", &relaytest.HostConfig{OnDial: func(h *relaytest.Host, _ transport.StreamDial) { h.Vanish() }}, 503, "host_gone", 2 * time.Second},
		{"refuses", &relaytest.HostConfig{OnDial: func(h *relaytest.Host, d transport.StreamDial) { h.Refuse(d, 403, "not today") }}, 403, "not today", 0},
		{"refuses with an odd status", &relaytest.HostConfig{OnDial: func(h *relaytest.Host, d transport.StreamDial) { h.Refuse(d, 200, "no") }}, 502, "refused", 0},
		{"closes mid-exchange", &relaytest.HostConfig{OnDial: func(h *relaytest.Host, d transport.StreamDial) {
			if c, err := h.DialBack(d); err == nil {
				c.CloseNow()
			}
		}}, 502, "stream_closed", 0},
		{"sends a body before its head", &relaytest.HostConfig{OnDial: func(h *relaytest.Host, d transport.StreamDial) {
			if c, err := h.DialBack(d); err == nil {
				c.Write(transport.Binary, []byte("x"))
				c.Reader()
			}
		}}, 502, "bad_answer", 0},
		{"never answers", &relaytest.HostConfig{OnDial: func(h *relaytest.Host, d transport.StreamDial) {
			if c, err := h.DialBack(d); err == nil {
				relaytest.ReadHTTPRequest(c)
				c.Reader()
			}
		}}, 504, "header_timeout", 65 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := server(t, nil)
				if tt.host != nil {
					s.MustConnect("h", *tt.host)
				}
				r := get(s, "/hosts/h/x")
				r.want(t, tt.name, tt.status, tt.code)
				r.wantWithin(t, tt.name, tt.within)
				if tt.status == 503 && r.header.Get("Retry-After") == "" {
					t.Error("a 503 without Retry-After")
				}
				settled(t, s, tt.name)
			})
		})
	}
}

// The control socket drops between dial and dial-back: within ReconnectGrace,
// and a host that is back by then is dialed anew (fault 14).
func TestGrace_HostThatComesBackIsDialedAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		h := s.MustConnect("h", relaytest.HostConfig{})
		c := async(s, "/hosts/h/x")
		nextDial(t, h)
		h.Vanish()
		time.Sleep(1500 * time.Millisecond)
		pending(t, c, "the host may come back within the grace")
		s.MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("back")})
		r := <-c
		r.want(t, "the host came back", 200, "back")
		r.wantWithin(t, "at once when it is back", 1600*time.Millisecond)
	})
}

func TestGrace_ExactlyTwoSecondsForAHostThatHasLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		h := s.MustConnect("h", relaytest.HostConfig{})
		h.Vanish()
		synctest.Wait()
		time.Sleep(500 * time.Millisecond)
		r := get(s, "/hosts/h/x")
		r.want(t, "it left 0.5 s ago", 503, "host_offline")
		if r.took != 1500*time.Millisecond {
			t.Errorf("waited %v for a host that left 0.5 s ago, want the remaining 1.5 s", r.took)
		}
		r = get(s, "/hosts/h/x")
		r.wantWithin(t, "it left long ago", 0)
	})
}

// Dials at a mute host are bounded and answered in time, and nothing is left
// (fault 13).
func TestLimits_ThousandClientsAtAMuteHost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.MustConnect("h", relaytest.HostConfig{})
		replies := make(chan reply, 1100)
		for range 1100 {
			go func() { replies <- get(s, "/hosts/h/x") }()
		}
		codes := map[int]int{}
		for range 1100 {
			r := <-replies
			codes[r.status]++
			r.wantWithin(t, "a client at a mute host", 10*time.Second)
		}
		if codes[504] != 1000 || codes[429] != 100 {
			t.Errorf("answers %v, want 1000 times 504 and 100 times 429", codes)
		}
		settled(t, s, "after a thousand clients")
	})
}

// A client that leaves takes its ticket with it, and an agent is told (fault 15).
func TestCancel_ClientLeavesWhileDialing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		h := s.MustConnect("h", relaytest.HostConfig{Proto: 3})
		conn := byConnect(t, s, "h")
		d := nextDial(t, h)
		conn.CloseNow()
		synctest.Wait()
		if n := relaytest.Count[transport.Cancel](h); n != 1 {
			t.Errorf("%d stream:cancel after the client left, want 1", n)
		}
		if _, err := h.DialBack(d); handshakeStatus(err) != 404 {
			t.Errorf("the ticket still works: %v", err)
		}
		settled(t, s, "after the client left")
	})
}

// An answer is matched by its ticket and nothing else: the first dial is
// answered last, and no byte crosses (fault 17).
func TestTicket_LateAnswersDoNotCross(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		h := s.MustConnect("h", relaytest.HostConfig{})
		var dials []transport.StreamDial
		var replies []<-chan reply
		for i := range 4 {
			replies = append(replies, async(s, fmt.Sprintf("/hosts/h/%d", i)))
			dials = append(dials, nextDial(t, h))
		}
		answer := relaytest.AnswerHTTP(func(r transport.HTTPRequest, _ []byte) (int, string) { return 200, "for " + r.Path })
		for i := range dials {
			answer(h, dials[len(dials)-1-i])
		}
		for i, c := range replies {
			(<-c).want(t, "answered in the opposite order", 200, fmt.Sprintf("for /%d", i))
		}
	})
}

func TestTicket_UsedOnceAndBoundToItsHost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		h := s.MustConnect("h", relaytest.HostConfig{})
		other := s.MustConnect("other", relaytest.HostConfig{})
		c := async(s, "/hosts/h/x")
		d := nextDial(t, h)
		if _, err := other.DialBack(d); handshakeStatus(err) != 404 {
			t.Errorf("another host's dial-back with the ticket: %v, want 404", err)
		}
		other.Refuse(d, 403, "not mine") // nor can another host refuse it
		pending(t, c, "another host cannot touch the dial")
		relaytest.AnswerText("mine")(h, d)
		(<-c).want(t, "its own host", 200, "mine")
		if _, err := h.DialBack(d); handshakeStatus(err) != 404 {
			t.Errorf("the second use of a ticket: %v, want 404", err)
		}
		for _, junk := range []string{"", "x", "a.b.c", strings.Repeat("A", 4096), d.Ticket + "x", "." + d.Ticket} {
			if _, err := h.DialBack(transport.StreamDial{Ticket: junk}); handshakeStatus(err) != 404 {
				t.Errorf("made-up ticket %.20q: %v, want 404", junk, err)
			}
		}
	})
}

// I1: a dial-back counts only if the host's generation in the Store, read when
// the ticket is taken, is still the dial's. Here another node claims the host
// between the dial and the dial-back, and this node does not know it.
func TestFence_DialBackOfAnOldGenerationIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memory.New()
		s := server(t, func(c *relay.Config) { c.Store = st })
		h := s.MustConnect("h", relaytest.HostConfig{})
		c := async(s, "/hosts/h/x")
		d := nextDial(t, h)
		_, err := st.Claim(context.Background(), store.Attachment{ID: "elsewhere", HostID: "h", NodeID: "other", Incarnation: "other", Role: store.RoleHost, Proto: 2}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.DialBack(d); handshakeStatus(err) != 404 {
			t.Errorf("a dial-back of a retired socket: %v, want 404", err)
		}
		r := <-c
		if r.status == 200 {
			t.Errorf("the retired socket's host answered the client: %q", r.body)
		}
	})
}

// Dial never succeeds before the far end has (fault 19), and a refusal after
// the 101 is a refusal (fault 20).
func TestDial_ServiceDownIsARefusal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.MustConnect("h", relaytest.HostConfig{Proto: 3, OnDial: func(h *relaytest.Host, d transport.StreamDial) {
			if c, err := h.DialBack(d); err == nil {
				c.Write(transport.Text, transport.Encode(transport.Refuse{Ticket: d.Ticket, Status: 502, Reason: "service down"}))
			}
		}})
		_, err := s.Relay.Dial(context.Background(), "h", relay.Target{})
		var refused *relay.RefusedError
		if !errors.As(err, &refused) || refused.Reason != "service down" {
			t.Errorf("Dial: %v, want the host's refusal", err)
		}
		conn := byConnect(t, s, "h")
		wantEnd(t, conn, "/connect", transport.CloseRefused, "service down")
		settled(t, s, "after refusals")
	})
}

func TestDial_FromInsideTheServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.StartAgent("h", map[string]agent.Handler{"echo": echo()}, nil)
		ctx, cancel := context.WithCancel(context.Background())
		c, err := s.Relay.Dial(ctx, "h", relay.Target{Service: "echo"})
		if err != nil {
			t.Fatal(err)
		}
		cancel() // the end of ctx after Dial does not hurt
		io.WriteString(c, "hello")
		c.(interface{ CloseWrite() error }).CloseWrite()
		b, err := io.ReadAll(c)
		if string(b) != "hello" || err != nil {
			t.Errorf("echo after half close: %q %v", b, err)
		}
		c.Close()
		settled(t, s, "after Close")
		if _, err := s.Relay.Dial(context.Background(), "h", relay.Target{Service: "nope"}); !errors.Is(err, relay.ErrRefused) {
			t.Errorf("an unknown service: %v, want ErrRefused", err)
		}
		if _, err := s.Relay.Dial(context.Background(), "nobody", relay.Target{}); !errors.Is(err, relay.ErrHostOffline) {
			t.Errorf("an offline host: %v, want ErrHostOffline", err)
		}
		tctx, tcancel := context.WithTimeout(context.Background(), time.Second)
		defer tcancel()
		s.MustConnect("mute", relaytest.HostConfig{Proto: 3})
		if _, err := s.Relay.Dial(tctx, "mute", relay.Target{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the caller's own deadline: %v", err)
		}
		settled(t, s, "after failed dials")
	})
}

// The host speaks first, 10 MB at once, and nothing is lost (fault 18).
func TestStream_HostSpeaksFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		const size = 10 << 20
		s.StartAgent("h", map[string]agent.Handler{"": agent.Raw(func(_ context.Context, st *agent.Stream) {
			b := make([]byte, 64<<10)
			for i := range b {
				b[i] = byte(i)
			}
			for range size / len(b) {
				st.Write(b)
			}
		})}, nil)
		c, err := s.Relay.Dial(context.Background(), "h", relay.Target{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		b, err := io.ReadAll(c)
		if err != nil || len(b) != size {
			t.Fatalf("%d bytes, %v; want %d", len(b), err, size)
		}
		for i := range b {
			if b[i] != byte(i%(64<<10)) {
				t.Fatalf("byte %d is wrong", i)
			}
		}
	})
}

// The Store fails: a host that is here is served, one that is not is 503 at
// once, and new hosts are told to come later.
func TestOutage_LocalHostsAreServed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := storetest.NewFaulty(memory.New())
		s := server(t, func(c *relay.Config) { c.Store = st })
		h := s.MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("served")})
		st.Set("*", storetest.Fault{Hang: true})
		get(s, "/hosts/h/x").want(t, "the first call finds out", 200, "served")
		r := get(s, "/hosts/h/x")
		r.want(t, "a local host without the Store", 200, "served")
		r.wantWithin(t, "nobody waits for the Store any more", time.Millisecond)
		r = get(s, "/hosts/elsewhere/x")
		r.want(t, "a host that is not here", 503, "store_unavailable")
		r.wantWithin(t, "a host that is not here", time.Second)
		get(s, "/health").want(t, "health", 200, `"degraded":true`)
		h.Send(transport.Ping{})
		time.Sleep(3 * time.Second)
		if n := relaytest.Count[transport.Pong](h); n != 1 {
			t.Errorf("%d pongs without the Store, want 1: no host leaves because of it", n)
		}
		_, err := s.Connect("new", relaytest.HostConfig{})
		var he *transport.HandshakeError
		if !errors.As(err, &he) || he.Status != 503 || he.RetryAfter == 0 {
			t.Errorf("a new host without the Store: %v, want 503 with Retry-After", err)
		}
		for range 100 {
			time.Sleep(time.Second)
			h.Send(transport.Ping{})
		}
		wantOpen(t, h, "100 s without the Store")
		st.Clear()
		time.Sleep(3 * time.Second)
		s.MustConnect("new", relaytest.HostConfig{})
		get(s, "/health").want(t, "health", 200, `{"ok":true,"proto":2}`)
	})
}

func TestOutage_FailClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := storetest.NewFaulty(memory.New())
		s := server(t, func(c *relay.Config) { c.Store, c.StoreOutage = st, relay.FailClosed })
		s.MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("served")})
		st.Set("*", storetest.Fault{Err: errors.New("down")})
		get(s, "/hosts/h/x").want(t, "a local host without the Store", 503, "store_unavailable")
	})
}

// The Store comes back empty: what is here is written again.
func TestOutage_EmptyStoreIsFilledAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := relaytest.NewLossyStore()
		s := server(t, func(c *relay.Config) { c.Store = st })
		s.MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("served")})
		st.Lose()
		get(s, "/hosts/h/x").want(t, "a call right after", 200, "served")
	})
}

// One failed call is no outage: it is made once more, and nothing that only an
// outage allows happens meanwhile.
func TestOutage_OneFailureIsNone(t *testing.T) {
	for _, method := range []string{"Current", "Ping", "Nodes", "KeepNode"} {
		for name, fault := range map[string]storetest.Fault{"hangs": {Hang: true, Times: 1}, "fails": {Err: errors.New("reset"), Times: 1}} {
			bubble(t, func(t *testing.T) {
				st := storetest.NewFaulty(memory.New())
				s := server(t, func(c *relay.Config) { c.Store, c.StoreOutage = st, relay.FailClosed })
				h := s.MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("served")})
				st.Set(method, fault)
				h.Send(transport.Ping{})
				for range 20 {
					get(s, "/hosts/h/x").want(t, method+" "+name+" once", 200, "served")
					get(s, "/health").want(t, method+" "+name+" once", 200, `{"ok":true,"proto":2}`)
					time.Sleep(500 * time.Millisecond)
				}
				if n := relaytest.Count[transport.Pong](h); n != 1 {
					t.Errorf("%s %s once: %d pongs, want 1", method, name, n)
				}
			})
		}
	}
}

// A claim whose answer never comes may have happened: it is taken back.
func TestOutage_UnknownClaimIsTakenBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := storetest.NewFaulty(memory.New())
		s := server(t, func(c *relay.Config) { c.Store = st })
		st.Set("Claim", storetest.Fault{Err: errors.New("reply lost"), After: true})
		h, err := s.Connect("h", relaytest.HostConfig{})
		if err == nil { // the Store has its row already
			err = <-h.Closed()
		}
		if transport.CloseCodeOf(err) != transport.CloseOffline {
			t.Errorf("a host that could not be claimed: %v, want 1013", err)
		}
		st.Clear()
		time.Sleep(3 * time.Second)
		if a, err := st.Current(context.Background(), "h"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("it is still current: %v %v", a.ID, err)
		}
	})
}

// A host that goes while the Store is out does not stay in it for ever.
func TestOutage_DetachIsMadeGood(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := storetest.NewFaulty(memory.New())
		s := server(t, func(c *relay.Config) { c.Store = st })
		h := s.MustConnect("h", relaytest.HostConfig{})
		st.Set("*", storetest.Fault{Err: errors.New("down")})
		h.Vanish()
		time.Sleep(3 * time.Second)
		st.Clear()
		time.Sleep(3 * time.Second)
		if _, err := st.Current(context.Background(), "h"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the host that left during the outage is still current: %v", err)
		}
	})
}

// Nor does one that was retired then: its mark is written with its reason.
func TestOutage_RetireIsMadeGood(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := storetest.NewFaulty(memory.New())
		s := server(t, func(c *relay.Config) { c.Store = st })
		s.MustConnect("h", relaytest.HostConfig{})
		time.Sleep(109 * time.Second)
		st.Set("*", storetest.Fault{Err: errors.New("down")})
		time.Sleep(3 * time.Second) // it is stale by now
		if n := s.Relay.Stats().Hosts; n != 0 {
			t.Fatalf("%d hosts, want none: it has been silent for StaleAfter", n)
		}
		st.Clear()
		time.Sleep(2 * time.Second)
		seen, err := st.LastSeen(t.Context(), []string{"h"})
		if s := seen["h"]; err != nil || s.Attached || s.Reason != store.ReasonStale {
			t.Errorf("the Store says %+v, %v; want a tombstone with the reason stale", s, err)
		}
	})
}

// One Detach fails, or its reply is lost, and the Store is there all the time: as
// when a thousand hosts leave at once and the Store's client is behind. The host
// is not current for the whole of RowTTL because of that.
func TestOutage_DetachIsMadeGoodWithoutAnOutage(t *testing.T) {
	for name, fault := range map[string]storetest.Fault{
		"failed":     {Err: errors.New("no free connection"), Times: 1},
		"twice":      {Err: errors.New("no free connection"), Times: 2},
		"reply lost": {Err: errors.New("no answer"), After: true, Times: 1},
		"late":       {Hang: true, Times: 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := storetest.NewFaulty(memory.New())
				s := server(t, func(c *relay.Config) { c.Store = st })
				h := s.MustConnect("h", relaytest.HostConfig{})
				st.Set("Detach", fault)
				h.Vanish()
				time.Sleep(4 * time.Second)
				if _, err := st.Current(context.Background(), "h"); !errors.Is(err, store.ErrNotFound) {
					t.Errorf("the host that left is still current: %v", err)
				}
				get(s, "/health").want(t, "one failed call", 200, `{"ok":true,"proto":2}`)
			})
		})
	}
}

// Tickets are credentials: whatever becomes of a dial, none is in the log.
func TestTicket_IsNeverLogged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log lockedBuffer
		s := server(t, func(c *relay.Config) {
			c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		})
		h := s.MustConnect("h", relaytest.HostConfig{})
		var tickets []string
		for _, end := range []func(d transport.StreamDial){
			func(d transport.StreamDial) { h.Refuse(d, 403, "no") },
			func(d transport.StreamDial) { relaytest.AnswerText("x")(h, d) },
			func(transport.StreamDial) {}, // no dial-back
			func(transport.StreamDial) { h.Vanish() },
		} {
			reply := async(s, "/hosts/h/x")
			d := nextDial(t, h)
			tickets = append(tickets, d.Ticket)
			end(d)
			<-reply
			h.DialBack(d) // too late, or for the second time
		}
		for _, ticket := range tickets {
			if strings.Contains(log.String(), ticket) || strings.Contains(log.String(), strings.Split(ticket, ".")[1]) {
				t.Errorf("a ticket is in the log: %s", log.String())
			}
		}
	})
}

// When Close returns, the streams of Dial have ended, and nobody is told of one
// after that.
func TestDial_CloseEndsTheStreamFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var closed atomic.Int32
		s := server(t, func(c *relay.Config) {
			c.Hooks.StreamClosed = func(relay.StreamInfo) {
				time.Sleep(time.Millisecond)
				closed.Add(1)
			}
		})
		s.StartAgent("h", map[string]agent.Handler{"": echo()}, nil)
		c, err := s.Relay.Dial(context.Background(), "h", relay.Target{})
		if err != nil {
			t.Fatal(err)
		}
		s.Relay.Close()
		if n := closed.Load(); n != 1 {
			t.Errorf("StreamClosed was called %d times before Close returned, want once", n)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("the stream goes on after Close")
		}
	})
}
