package relay_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/internal/memnet"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/relaytest"
	"github.com/dialback/dialback/transport"
)

func noSpares(c *relay.Config) { c.MaxSpares = -1 }

// echoOnce opens a byte stream, sends a word and waits for it to come back.
func echoOnce(t *testing.T, s *relaytest.Server, host, word string) (took time.Duration) {
	t.Helper()
	start := time.Now()
	conn := byConnect(t, s, host)
	defer conn.CloseNow()
	c := transport.NewStreamConn(conn)
	if _, err := io.WriteString(c, word); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, len(word))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != word {
		t.Fatalf("echo of %q: %q, %v", word, b, err)
	}
	return time.Since(start)
}

// spares checks how many sockets wait for a stream.
func spares(t *testing.T, s *relaytest.Server, why string, want int) {
	t.Helper()
	synctest.Wait()
	if n := s.Relay.Stats().Spares; n != want {
		t.Fatalf("%s: %d spares, want %d", why, n, want)
	}
}

// A new stream to a far host that is in use costs one round trip, and one to a
// host that is not four.
func TestSpare_NewStreamCostsOneRoundTrip(t *testing.T) {
	const oneWay = 25 * time.Millisecond
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.StartAgentOn(s.FarTransport(oneWay), "far", map[string]agent.Handler{
			"": echo(), "web": agent.HTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.URL.Path) })),
		}, nil)
		first := echoOnce(t, s, "far", "first")
		if first < 6*oneWay {
			t.Errorf("the first stream took %v: the network is not far", first)
		}
		for i := range 5 {
			time.Sleep(time.Second)
			if d := echoOnce(t, s, "far", fmt.Sprint("word ", i)); d != 2*oneWay {
				t.Errorf("stream %d took %v, want %v", i, d, 2*oneWay)
			}
		}
		time.Sleep(time.Second)
		start := time.Now()
		conn, err := s.Relay.Dial(context.Background(), "far", relay.Target{})
		if d := time.Since(start); err != nil || d != 2*oneWay {
			t.Fatalf("Dial took %v, %v; want %v: it waits for the agent", d, err, 2*oneWay)
		}
		conn.Close()
		time.Sleep(time.Second)
		client := &http.Client{Transport: s.Relay.RoundTripper("far", relay.Target{Service: "web"})}
		start = time.Now()
		resp, err := client.Get("http://x/path")
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if d := time.Since(start); string(b) != "/path" || d != 2*oneWay {
			t.Errorf("GET answered %q in %v, want %v", b, d, 2*oneWay)
		}
		if n := s.Relay.Stats().SpareOpens; n != 7 {
			t.Errorf("%d streams were opened on spares, want 7", n)
		}
	})
}

// The number of spares follows the use of the host; a spare that nobody takes
// is not replaced.
func TestSpare_FollowsUse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.StartAgent("h", map[string]agent.Handler{"": echo()}, nil)
		s.MustConnect("v2", relaytest.HostConfig{OnDial: relaytest.AnswerText("ok")})
		get(s, "/hosts/v2/x").want(t, "a v2 host", 200, "ok")
		spares(t, s, "nobody has used the host", 0)
		echoOnce(t, s, "h", "a")
		spares(t, s, "after the first stream", 1)
		echoOnce(t, s, "h", "b")
		spares(t, s, "after the second", 2)
		time.Sleep(60 * time.Second)
		spares(t, s, "while the host may be used again", 2)
		time.Sleep(40 * time.Second)
		spares(t, s, "after PoolIdle without use", 0)
		echoOnce(t, s, "h", "c")
		spares(t, s, "used again after long", 1)
		settled(t, s, "at the end")
	})
}

func TestSpare_NoneWhenTheConfigSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, noSpares)
		s.StartAgent("h", map[string]agent.Handler{"": echo()}, nil)
		for range 5 {
			echoOnce(t, s, "h", "a")
		}
		spares(t, s, "MaxSpares is negative", 0)
	})
}

// What is parked ends with the generation, by revoke, and with the node, and is
// never opened again.
func TestSpare_BelongsToItsGeneration(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		stop := s.StartAgent("h", map[string]agent.Handler{"": echo()}, nil)
		echoOnce(t, s, "h", "a")
		spares(t, s, "before", 1)
		s.MustConnect("h", relaytest.HostConfig{Proto: 3})
		spares(t, s, "after another process took over", 0)
		stop()
		s.StartAgent("h", map[string]agent.Handler{"": echo()}, nil)
		echoOnce(t, s, "h", "a")
		spares(t, s, "of the new generation", 2)
		s.Relay.Revoke(context.Background(), "h", "test")
		spares(t, s, "after the revoke", 0)
	})
}

// An agent that knows no spares is asked once, not for each stream.
func TestSpare_RefusedIsNotAskedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		h := s.MustConnect("h", relaytest.HostConfig{Proto: 3})
		for range 4 {
			connectTo(t, s, h)
			synctest.Wait()
		}
		if n := relaytest.Count[transport.StreamDial](h); n != 5 {
			t.Errorf("%d dials for 4 streams, want 5: one for a spare", n)
		}
	})
}

// spareHost is a host of protocol 3 whose spares do what the script says; dials
// of streams are answered by an echo that notes what it got.
type spareHost struct {
	*relaytest.Host
	spare  func(c transport.Conn, freeze, thaw func())
	mu     sync.Mutex
	dialed []transport.StreamDial
	got    bytes.Buffer // by way of dials
}

func newSpareHost(t *testing.T, s *relaytest.Server, cfg relaytest.HostConfig, spare func(c transport.Conn, freeze, thaw func())) *spareHost {
	h := &spareHost{spare: spare}
	cfg.Proto, cfg.Spares, cfg.OnDial = 3, true, h.onDial
	h.Host = s.MustConnect("h", cfg)
	return h
}

func (h *spareHost) onDial(host *relaytest.Host, d transport.StreamDial) {
	if d.Kind == transport.KindSpare {
		if c, freeze, thaw, err := host.DialBackFreezable(d); err == nil {
			h.spare(c, freeze, thaw)
		}
		return
	}
	h.mu.Lock()
	h.dialed = append(h.dialed, d)
	h.mu.Unlock()
	sc, err := host.Open(d)
	if err != nil {
		return
	}
	for b := make([]byte, 32<<10); ; {
		n, err := sc.Read(b)
		h.mu.Lock()
		h.got.Write(b[:n])
		h.mu.Unlock()
		if err != nil {
			return
		}
		sc.Write(b[:n])
	}
}

func (h *spareHost) seen() (dials int, got string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.dialed), h.got.String()
}

// readStreamOpen reads the first frame of a spare.
func readStreamOpen(c transport.Conn) (f transport.StreamOpen, err error) {
	_, r, err := c.Reader()
	if err != nil {
		return f, err
	}
	p, err := io.ReadAll(r)
	if err != nil {
		return f, err
	}
	frame, err := transport.Decode(p)
	f, _ = frame.(transport.StreamOpen)
	return f, err
}

// A spare whose path is dead costs a stream AckTimeout; what the client has sent
// meanwhile, more than is kept even, arrives once and in order.
func TestSpare_DeadPathCostsTwoSeconds(t *testing.T) {
	for _, size := range []int{1, 200 << 10} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := server(t, nil)
				h := newSpareHost(t, s, relaytest.HostConfig{}, func(c transport.Conn, freeze, thaw func()) { freeze() })
				echoOnce(t, s, "h", "first")
				spares(t, s, "before", 1)
				word := strings.Repeat("0123456789", size/10+1)
				if d := echoOnce(t, s, "h", word); d != 2*time.Second {
					t.Errorf("took %v, want 2 s", d)
				}
				if dials, got := h.seen(); dials != 2 || got != "first"+word {
					t.Errorf("%d dials; the host got %d bytes, want %d once and in order", dials, len(got), len(word)+5)
				}
			})
		})
	}
}

// A spare that has ended costs nothing, whether the relay knows already or not.
func TestSpare_EndedCostsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		newSpareHost(t, s, relaytest.HostConfig{}, func(c transport.Conn, freeze, thaw func()) {
			if _, err := readStreamOpen(c); err == nil {
				c.CloseNow()
			}
		})
		echoOnce(t, s, "h", "first")
		spares(t, s, "before", 1)
		if d := echoOnce(t, s, "h", "second"); d != 0 {
			t.Errorf("a spare that ends at stream:open: took %v", d)
		}
	})
}

// The agent that has the spare opens a stream once: when the answer is late, the
// dial beside it is refused, the spare goes on, and its bytes were sent once.
func TestSpare_LateAnswerWins(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		opened := make(chan string, 1)
		host := s.MustConnect("h", relaytest.HostConfig{Proto: 3, Spares: true, OnDial: func(h *relaytest.Host, d transport.StreamDial) {
			if d.Kind != transport.KindSpare {
				if len(opened) > 0 {
					h.Refuse(d, 503, transport.ReasonAlreadyOpen)
					return
				}
				h.Open(d)
				return
			}
			c, err := h.DialBack(d)
			if err != nil {
				return
			}
			f, err := readStreamOpen(c)
			if err != nil {
				return
			}
			opened <- f.Stream
			time.Sleep(5 * time.Second) // the service is slow
			c.Write(transport.Text, transport.Encode(transport.Opened{}))
			sc := transport.NewStreamConn(c)
			io.Copy(sc, sc)
		}})
		first := byConnect(t, s, "h")
		defer first.CloseNow()
		spares(t, s, "before", 1)
		if d := echoOnce(t, s, "h", "word"); d != 5*time.Second {
			t.Errorf("took %v, want the 5 s of the service", d)
		}
		var last transport.StreamDial
		for _, f := range host.Frames() {
			if d, ok := f.(transport.StreamDial); ok && d.Kind == transport.KindTCP {
				last = d
			}
		}
		if id := <-opened; last.Stream != id || last.Proto != transport.ProtoRaw {
			t.Errorf("the dial beside the spare: %+v, want that of stream %q", last, id)
		}
	})
}

// What may have reached a service is not sent to another process; what has sent
// nothing yet goes where the host is now. Neither waits for a timer when the
// host is replaced.
func TestSpare_NeverSentToAnotherProcess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		newSpareHost(t, s, relaytest.HostConfig{}, func(c transport.Conn, freeze, thaw func()) { freeze() })
		echoOnce(t, s, "h", "first")
		echoOnce(t, s, "h", "second")
		spares(t, s, "before", 2)
		spoke := byConnect(t, s, "h")
		defer spoke.CloseNow()
		spoke.Write(transport.Binary, []byte("bytes"))
		silent := byConnect(t, s, "h")
		defer silent.CloseNow()
		synctest.Wait()
		start := time.Now()
		h := newSpareHost(t, s, relaytest.HostConfig{}, func(c transport.Conn, freeze, thaw func()) {})
		wantEnd(t, spoke, "the host was replaced", transport.CloseDataAbnormal, "by another process")
		synctest.Wait() // the other stream is dialed anew: what it sends from now on has not begun elsewhere
		c := transport.NewStreamConn(silent)
		io.WriteString(c, "hello")
		if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
			t.Errorf("the stream that had sent nothing: %v", err)
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("took %v", d)
		}
		if _, got := h.seen(); got != "hello" {
			t.Errorf("the new process got %q, want hello", got)
		}
	})
}

// The same process under a newer generation opens a stream once as well.
func TestSpare_SameProcessReconnected(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		cfg := relaytest.HostConfig{Instance: "6ba7b810-9dad-11d1-80b4-00c04fd430c8", Seq: 1}
		newSpareHost(t, s, cfg, func(c transport.Conn, freeze, thaw func()) { freeze() })
		echoOnce(t, s, "h", "first")
		spares(t, s, "before", 1)
		conn := byConnect(t, s, "h")
		defer conn.CloseNow()
		c := transport.NewStreamConn(conn)
		io.WriteString(c, "bytes")
		synctest.Wait()
		start := time.Now()
		cfg.Seq = 2
		h := newSpareHost(t, s, cfg, func(c transport.Conn, freeze, thaw func()) {})
		if _, err := io.ReadFull(c, make([]byte, 5)); err != nil || time.Since(start) != 0 {
			t.Errorf("after the reconnect: %v, %v", err, time.Since(start))
		}
		if _, got := h.seen(); got != "bytes" {
			t.Errorf("the host got %q", got)
		}
	})
}

// A refusal on a spare reaches the client at once, with its reason; junk is one.
func TestSpare_RefusalsAreTold(t *testing.T) {
	tests := []struct {
		name, answer string
		code         transport.CloseCode
		reason       string
	}{
		{"refused", `{"type":"stream:refuse","status":403,"reason":"not for you"}`, transport.CloseRefused, "not for you"},
		{"junk", `{"type":"hello","generation":1}`, transport.CloseRefused, "first frame"},
		{"no frame", `what?`, transport.CloseRefused, "first frame"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := server(t, nil)
				newSpareHost(t, s, relaytest.HostConfig{}, func(c transport.Conn, freeze, thaw func()) {
					if _, err := readStreamOpen(c); err == nil {
						c.Write(transport.Text, []byte(tt.answer))
						closeOf(c)
					}
				})
				echoOnce(t, s, "h", "first")
				spares(t, s, "before", 1)
				start := time.Now()
				conn := byConnect(t, s, "h")
				conn.Write(transport.Binary, []byte("bytes"))
				wantEnd(t, conn, tt.name, tt.code, tt.reason)
				if d := time.Since(start); d != 0 {
					t.Errorf("took %v", d)
				}
				settled(t, s, "after the refusal")
			})
		})
	}
}

// A host that speaks unasked on a spare loses it, and nothing else.
func TestSpare_UnaskedFrameEndsIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		h := newSpareHost(t, s, relaytest.HostConfig{}, func(c transport.Conn, freeze, thaw func()) {
			c.Write(transport.Text, transport.Encode(transport.Opened{}))
			closeOf(c)
		})
		echoOnce(t, s, "h", "first")
		spares(t, s, "after the unasked frame", 0)
		echoOnce(t, s, "h", "second")
		wantOpen(t, h.Host, "the control socket")
	})
}

// A client that leaves before the answer ends the opening; one that has closed
// cleanly behind its bytes has them delivered.
func TestSpare_ClientLeavesBeforeTheAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		h := newSpareHost(t, s, relaytest.HostConfig{}, func(c transport.Conn, freeze, thaw func()) { freeze() })
		echoOnce(t, s, "h", "first")
		spares(t, s, "before", 1)
		conn := byConnect(t, s, "h")
		synctest.Wait()
		conn.CloseNow()
		settled(t, s, "after the client was lost")
		echoOnce(t, s, "h", "again")
		spares(t, s, "again", 2)
		conn = byConnect(t, s, "h")
		conn.Write(transport.Binary, []byte("fire and forget"))
		conn.Close(transport.CloseNormal, "")
		time.Sleep(3 * time.Second)
		settled(t, s, "after the client has closed")
		if _, got := h.seen(); got != "firstagainfire and forget" {
			t.Errorf("the host got %q", got)
		}
	})
}

// A POST is not written before the agent has answered; a GET goes along, and
// again if the spare was lost. A service never sees one of them twice.
func TestSpare_RequestsAreSafe(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		t.Run(method, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := server(t, func(c *relay.Config) { c.MaxIdleStreams = -1 })
				var seen []string
				requests := new(atomic.Int32)
				s.MustConnect("h", relaytest.HostConfig{Proto: 3, Spares: true, OnDial: func(h *relaytest.Host, d transport.StreamDial) {
					if d.Kind == transport.KindSpare {
						c, err := h.DialBack(d)
						if err != nil {
							return
						}
						if _, err := readStreamOpen(c); err != nil {
							return
						}
						_, r, err := c.Reader()
						if err == nil {
							p, _ := io.ReadAll(r)
							seen = append(seen, string(p))
						}
						c.CloseNow()
						return
					}
					sc, err := h.Open(d)
					if err != nil {
						return
					}
					requests.Add(1)
					sc.Read(make([]byte, 4096))
					io.WriteString(sc, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				}})
				body := map[string]string{"POST": "body"}[method]
				do(s, method, "/hosts/h/1", body).want(t, "by a dial", 200, "ok")
				spares(t, s, "before", 1)
				go func() { // a POST waits for an answer that does not come
					r := do(s, method, "/hosts/h/2", body)
					r.want(t, "on a spare that is lost", 200, "ok")
					if method == "POST" && r.took != 2*time.Second {
						t.Errorf("POST took %v", r.took)
					}
				}()
				time.Sleep(5 * time.Second)
				if n := requests.Load(); n != 2 {
					t.Errorf("%d requests by dials, want 2", n)
				}
				if want := map[string]int{"GET": 1, "POST": 0}[method]; len(seen) != want {
					t.Errorf("%d requests went along with stream:open, want %d: %q", len(seen), want, seen)
				}
			})
		})
	}
}

// The spares of a host are at the node of its client, whichever holds the
// control socket.
func TestCluster_SparesAreAtTheClientsNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 3, nil)
		c.Nodes[0].StartAgentOn(farAndSplit(c), "h", map[string]agent.Handler{"": echo()}, nil)
		time.Sleep(3 * time.Second) // the tables of nodes are read
		echoOnce(t, c.Nodes[1], "h", "first")
		for i := range 3 {
			time.Sleep(time.Second)
			if d := echoOnce(t, c.Nodes[1], "h", "word"); d != 2*farOneWay {
				t.Errorf("stream %d took %v, want %v", i, d, 2*farOneWay)
			}
		}
		time.Sleep(time.Second)
		for i, n := range c.Nodes {
			if got, want := n.Relay.Stats().Spares, []int{0, 2, 0}[i]; got != want {
				t.Errorf("node %d has %d spares, want %d", i, got, want)
			}
		}
	})
}

// An agent behind a frozen path refuses what arrives late: the service sees each
// stream once.
func TestSpare_ThawedOpenIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		var mu sync.Mutex
		var conns []*memnet.Conn
		tr := s.Transport()
		dial := tr.DialContext
		tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			if err == nil {
				mu.Lock()
				conns = append(conns, c.(*memnet.Conn))
				mu.Unlock()
			}
			return c, err
		}
		got := make(chan string, 10)
		s.StartAgentOn(tr, "h", map[string]agent.Handler{"": agent.Raw(func(_ context.Context, st *agent.Stream) {
			b, _ := io.ReadAll(st)
			if len(b) > 0 {
				got <- string(b)
			}
		})}, nil)
		send := func(word string) transport.Conn {
			conn := byConnect(t, s, "h")
			c := transport.NewStreamConn(conn)
			io.WriteString(c, word)
			c.CloseWrite()
			return conn
		}
		defer send("first").CloseNow()
		spares(t, s, "before", 1)
		mu.Lock()
		spare := conns[2] // control, the first stream, the spare
		mu.Unlock()
		spare.Freeze()
		defer send("second").CloseNow()
		time.Sleep(3 * time.Second)
		spare.Thaw()
		time.Sleep(3 * time.Second)
		if a, b := <-got, <-got; a != "first" || b != "second" || len(got) > 0 {
			t.Errorf("the service got %q and %q, and %d more", a, b, len(got))
		}
	})
}

// A stream whose bytes went out on a spare may have reached the service. The
// dial beside it cannot be told as the outcome then: host_gone and its like say
// that nothing has, and the client may open the stream again.
func TestSpare_WhatMayHaveBegunIsNotSaidToHaveNot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		h := newSpareHost(t, s, relaytest.HostConfig{}, func(c transport.Conn, freeze, thaw func()) { freeze() })
		echoOnce(t, s, "h", "first")
		spares(t, s, "before", 1)
		conn := byConnect(t, s, "h")
		defer conn.CloseNow()
		conn.Write(transport.Binary, []byte("bytes"))
		synctest.Wait()
		start := time.Now()
		h.Close() // and it does not come back
		wantEnd(t, conn, "the host left", transport.CloseDataAbnormal, "may have begun")
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("took %v", d)
		}
	})
}

// The dial beside a spare may find that the host is another process by now, just
// as the spare answers: it leaves the stream alone.
func TestSpare_WonStreamIsLeftAloneByItsDial(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := transport.Pipe(nil)
		defer b.CloseNow()
		defer a.CloseNow()
		if relay.SettledMayGo(a) {
			t.Error("the stream is dialed once more")
		}
		select {
		case <-a.Done():
			t.Error("the stream was cut")
		default:
		}
	})
}
