package relay_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
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
	"github.com/dialback/dialback/transport"
)

// Small requests one after the other take one dial-back.
func TestPool_OneDialBackForManyRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, noSpares)
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(w, r.Body)
			io.WriteString(w, r.URL.Path)
		}), nil)
		for i := range 50 {
			do(s, []string{"GET", "POST"}[i%2], fmt.Sprint("/hosts/h/", i), strings.Repeat("x", i%2)).want(t, "a request", 200, fmt.Sprint("/", i))
		}
		if n := s.Relay.Stats().DialBacks; n > 3 {
			t.Errorf("%d dial-backs for 50 requests one after the other", n)
		}
		settled(t, s, "after the requests")
	})
}

// Services and hosts share nothing.
func TestPool_ServicesAreApart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, noSpares)
		s.StartAgent("h", map[string]agent.Handler{"": text("default"), "b": text("b")}, nil)
		s.StartAgent("h2", map[string]agent.Handler{"": text("h2")}, nil)
		for range 5 {
			for _, tt := range []struct{ host, service, want string }{{"h", "", "default"}, {"h", "b", "b"}, {"h2", "", "h2"}} {
				resp, err := (&http.Client{Transport: s.Relay.RoundTripper(tt.host, relay.Target{Service: tt.service})}).Get("http://x/")
				if err != nil {
					t.Fatal(err)
				}
				b, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if string(b) != tt.want {
					t.Fatalf("%s/%s answered %q", tt.host, tt.service, b)
				}
			}
		}
		if n := s.Relay.Stats().DialBacks; n != 3 {
			t.Errorf("%d dial-backs for three services, want 3", n)
		}
	})
}

// An idle stream is closed by the relay, after PoolIdle, and by nobody else.
func TestPool_OnlyTheRelayClosesAnIdleStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		a := new(atomic.Int32)
		s.StartAgent("h", map[string]agent.Handler{"": text("x")}, &agent.Config{Hooks: agent.Hooks{StreamClosed: func(agent.StreamInfo) { a.Add(1) }}})
		get(s, "/hosts/h/x").want(t, "a request", 200, "x")
		time.Sleep(90*time.Second - time.Nanosecond)
		synctest.Wait()
		if a.Load() != 0 {
			t.Error("the stream was closed before PoolIdle was over")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if a.Load() != 1 {
			t.Errorf("%d streams closed after PoolIdle, want 1", a.Load())
		}
	})
}

// A steady cadence of any rhythm, POSTs, meets no close (report C).
func TestReportC_SteadyCadenceThroughThePool(t *testing.T) {
	for _, every := range []time.Duration{240 * time.Millisecond, 250 * time.Millisecond, time.Second, 4 * time.Second, 5 * time.Second, 6 * time.Second, 89 * time.Second, 90 * time.Second, 91 * time.Second} {
		bubble(t, func(t *testing.T) {
			s := server(t, nil)
			s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }), nil)
			for range 50 {
				do(s, "POST", "/hosts/h/x", "hello").want(t, fmt.Sprint("every ", every), 200, "hello")
				time.Sleep(every)
			}
		})
	}
}

// A host that was replaced gets no request over an idle stream, whichever node
// claims it.
func TestPool_ReplacedHostIsNotReached(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 2, nil)
		c.Nodes[0].StartAgent("h", map[string]agent.Handler{"": text("old")}, nil)
		for _, n := range c.Nodes {
			get(n, "/hosts/h/x").want(t, "before", 200, "old")
		}
		c.Nodes[1].StartAgent("h", map[string]agent.Handler{"": text("new")}, nil)
		synctest.Wait()
		for _, n := range c.Nodes {
			get(n, "/hosts/h/x").want(t, "right after the replacement", 200, "new")
		}
	})
}

// Without the news of the claim, a stream of the old generation is taken for a
// second at most: the generation is read.
func TestPool_GenerationIsReadWithinASecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memory.New()
		s := server(t, func(c *relay.Config) { c.Store = st })
		pooledHost(t, s, nil)
		get(s, "/hosts/h/x").want(t, "before", 200, "ok")
		_, err := st.Claim(context.Background(), store.Attachment{ID: "elsewhere", HostID: "h", NodeID: "other", Incarnation: "other", Role: store.RoleHost, Proto: 3}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if r := get(s, "/hosts/h/x"); r.status == 200 {
			t.Errorf("a second after the claim elsewhere the old host answered: %q", r.body)
		}
	})
}

// frozenPool is a host of protocol 3 whose first data socket carries one
// request and is frozen then.
func frozenPool(t *testing.T, s *relaytest.Server) (requests *atomic.Int32) {
	first := true
	return pooledHost(t, s, func() bool {
		was := first
		first = false
		return was
	})
}

// pooledHost is a host of protocol 3 that answers ok to each request on its
// streams; freezes says whether a new stream is frozen after its first answer.
func pooledHost(t *testing.T, s *relaytest.Server, freezes func() bool) (requests *atomic.Int32) {
	requests = new(atomic.Int32)
	s.MustConnect("h", relaytest.HostConfig{Proto: 3, OnDial: func(h *relaytest.Host, d transport.StreamDial) {
		sc, freeze, err := h.OpenFreezable(d)
		if err != nil {
			return
		}
		freezeAfter := freezes != nil && freezes()
		buf := make([]byte, 4096)
		for {
			n, err := sc.Read(buf)
			if err != nil {
				return
			}
			if !strings.Contains(string(buf[:n]), " HTTP/1.1\r\n") {
				continue // a body
			}
			requests.Add(1)
			io.WriteString(sc, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			if freezeAfter {
				time.Sleep(10 * time.Millisecond) // the answer is on its way
				freeze()
			}
		}
	}})
	return requests
}

// A stream to a frozen peer costs a request the 2 s of its proof at most. One
// that cannot be sent twice is not written before the proof.
func TestPool_FrozenPeerCostsItsProof(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		for _, idle := range []time.Duration{20 * time.Millisecond, time.Second} {
			if method == "POST" && idle < time.Second {
				continue // used so lately that it is written without a proof
			}
			t.Run(fmt.Sprint(method, " after ", idle), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					s := server(t, nil)
					requests := frozenPool(t, s)
					get(s, "/hosts/h/first").want(t, "the first", 200, "ok")
					time.Sleep(idle)
					r := do(s, method, "/hosts/h/second", map[string]string{"POST": "body"}[method])
					r.want(t, "the second", 200, "ok")
					r.wantWithin(t, "the second", 2500*time.Millisecond)
					if n := requests.Load(); n != 2 {
						t.Errorf("the service saw %d requests, want 2: at most once", n)
					}
				})
			})
		}
	}
}

// A request is sent again only if its method or its key makes that safe, and
// if it has no body, which has been read.
func TestPool_WhatIsSentTwice(t *testing.T) {
	tests := []struct {
		method, body, key string
		twice             bool
	}{
		{"POST", "body", "", false},
		{"POST", "", "", false},
		{"PUT", "", "", false},
		{"DELETE", "", "", false},
		{"GET", "body", "", true},
		{"POST", "body", "key", true},
		{"POST", strings.Repeat("long ", 20<<10), "key", false},
		{"POST", "", "key", true},
		{"GET", "", "", true},
		{"HEAD", "", "", true},
		{"OPTIONS", "", "", true},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s %.5s %s", tt.method, tt.body, tt.key), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := server(t, nil)
				var seen atomic.Int32
				s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					switch n := seen.Add(1); {
					case n == 2:
						panic(http.ErrAbortHandler)
					case n == 3 && string(body) != tt.body:
						t.Errorf("the second time the body was %.50q", body)
					}
				}), nil)
				get(s, "/hosts/h/x").want(t, "the first", 200, "")
				req, _ := http.NewRequest(tt.method, s.URL+"/hosts/h/x", strings.NewReader(tt.body))
				if tt.key != "" {
					req.Header.Set("Idempotency-Key", tt.key)
				}
				resp, body, err := s.DoRequest(req)
				if err != nil {
					t.Fatal(err)
				}
				status, times := 502, int32(2)
				if tt.twice {
					status, times = 200, 3
				}
				if n := s.Relay.Stats().ReplayBytes; n != 0 {
					t.Errorf("%d bytes are still kept", n)
				}
				if resp.StatusCode != status || seen.Load() != times {
					t.Errorf("%d %q, and the service saw %d requests in all; want %d and %d", resp.StatusCode, body, seen.Load(), status, times)
				}
			})
		})
	}
}

// A request with an Idempotency-Key and a body waits for the proof, and goes over
// a fresh stream if the pong does not come.
func TestPool_FrozenPeerAndIdempotencyKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		requests := frozenPool(t, s)
		get(s, "/hosts/h/first").want(t, "the first", 200, "ok")
		time.Sleep(time.Second)
		req, _ := http.NewRequest("POST", s.URL+"/hosts/h/second", strings.NewReader("body"))
		req.Header.Set("Idempotency-Key", "key")
		start := time.Now()
		resp, _, err := s.DoRequest(req)
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
		if d := time.Since(start); d != 2*time.Second {
			t.Errorf("took %v, want the 2 s of the proof", d)
		}
		if st := s.Relay.Stats(); requests.Load() != 2 || st.Replays != 1 || st.ReplayBytes != 0 {
			t.Errorf("%d requests, %+v", requests.Load(), st)
		}
	})
}

// A GET whose idle stream dies before a byte of the answer is sent again.
func TestPool_GetIsReplayedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		var n atomic.Int32
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1) == 2 {
				panic(http.ErrAbortHandler)
			}
			io.WriteString(w, "ok")
		}), nil)
		get(s, "/hosts/h/x").want(t, "the first", 200, "ok")
		get(s, "/hosts/h/x").want(t, "the second, whose stream dies", 200, "ok")
		if s.Relay.Stats().Replays != 1 {
			t.Errorf("%d replays, want 1", s.Relay.Stats().Replays)
		}
	})
}

// A host that sends what nobody asked for loses its idle stream, and no answer
// is taken for another's.
func TestPool_UnaskedBytesEndTheStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.MustConnect("h", relaytest.HostConfig{Proto: 3, OnDial: func(h *relaytest.Host, d transport.StreamDial) {
			sc, err := h.Open(d)
			if err != nil {
				return
			}
			for {
				if _, err := sc.Read(make([]byte, 4096)); err != nil {
					return
				}
				io.WriteString(sc, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				time.Sleep(time.Second)
				io.WriteString(sc, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
			}
		}})
		for range 5 {
			get(s, "/hosts/h/x").want(t, "an answer to this very request", 200, "ok")
			time.Sleep(3 * time.Second)
		}
	})
}

// A service that does not answer in time has the request; it is not sent again.
func TestPool_HeaderTimeoutIsNotReplayed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		var n atomic.Int32
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1) > 1 {
				<-r.Context().Done()
			}
		}), nil)
		get(s, "/hosts/h/x").want(t, "the first", 200, "")
		r := get(s, "/hosts/h/x")
		r.want(t, "a slow answer over a kept stream", 504, "header_timeout")
		r.wantWithin(t, "a slow answer over a kept stream", 65*time.Second)
		if n.Load() != 2 {
			t.Errorf("the service saw %d requests in all, want 2", n.Load())
		}
	})
}

// A request whose stream is lost while its client pauses in the body is sent
// again if the client goes on soon, and answered if it does not.
func TestPool_LostStreamAndClientThatPauses(t *testing.T) {
	for _, tt := range []struct {
		pause  time.Duration
		status int
		within time.Duration
	}{
		{5 * time.Second, 200, 5 * time.Second},
		{2 * time.Hour, 502, 11 * time.Second}, // DialTimeout after the loss
	} {
		t.Run(tt.pause.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := server(t, func(c *relay.Config) { c.MaxSpares = -1 })
				posts := 0
				s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodPost {
						if posts++; posts == 1 {
							time.Sleep(time.Second)
							panic(http.ErrAbortHandler)
						}
						io.Copy(w, r.Body)
					}
				}), nil)
				get(s, "/hosts/h/").want(t, "a stream for the pool", 200, "")
				pr, pw := io.Pipe()
				go func() {
					io.WriteString(pw, "one ")
					time.Sleep(tt.pause)
					io.WriteString(pw, "two")
					pw.Close()
				}()
				req, _ := http.NewRequest("POST", s.URL+"/hosts/h/x", pr)
				req.Header.Set("Idempotency-Key", "key")
				began := time.Now()
				resp, body, err := s.DoRequest(req)
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); resp.StatusCode != tt.status || took > tt.within {
					t.Errorf("%d %q after %v, want %d within %v", resp.StatusCode, body, took, tt.status, tt.within)
				}
				if tt.status == 200 && body != "one two" {
					t.Errorf("the service saw %q, want the whole body", body)
				}
				settled(t, s, "after the answer")
				time.Sleep(tt.pause)
			})
		})
	}
}

// A client that leaves while a stream is proven is what ends its request, not the
// stream.
func TestPool_ClientLeavesDuringTheProof(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		requests := frozenPool(t, s)
		get(s, "/hosts/h/first").want(t, "the first", 200, "ok")
		time.Sleep(time.Second)
		c, err := s.Transport().DialContext(t.Context(), "tcp", "relay.test:80")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, "POST /hosts/h/second HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
		time.Sleep(50 * time.Millisecond)
		c.(interface{ CloseWrite() error }).CloseWrite()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != 499 || resp.Header.Get("Dialback-Error") != "client_gone" {
			t.Errorf("%v, %v; want 499 client_gone", resp, err)
		}
		if requests.Load() != 1 {
			t.Errorf("the service saw %d requests, want the first one", requests.Load())
		}
	})
}
