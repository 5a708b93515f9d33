package agent_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/transport"
)

// bareStream is a stream to the default HTTP service, on which nobody reads
// ahead.
func bareStream(c *fakeControl, ticket string) *fakeStream {
	c.dial(transport.StreamDial{Ticket: ticket, Proto: transport.ProtoHTTP})
	return c.relay.stream()
}

// While a service thinks somebody reads the data socket: pings are answered,
// from 10 ms on.
func TestForwardHTTP_PongsWhileTheServiceThinks(t *testing.T) {
	synctest.Test(t, testForwardHTTPPongsWhileTheServiceThinks)
}
func testForwardHTTPPongsWhileTheServiceThinks(t *testing.T) {
	for _, request := range []string{
		"GET /think HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST /think HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab",
		"POST /think HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
		"GET /pause HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		c := forward(t, "http://local:80", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if r.URL.Path == "/pause" {
				_, _ = io.WriteString(w, "event")
				_ = http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
		})
		s := bareStream(c, "t")
		for part := range strings.SplitAfterSeq(request, "\r\n\r\n") { // head and body apart, and an empty message
			s.write(part)
		}
		pongs := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			pongs <- s.Ping(ctx)
			s.CloseNow()
		}()
		for {
			if _, err := s.message(); err != nil {
				break
			}
		}
		if err := <-pongs; err != nil {
			t.Errorf("%.20q: ping %v, want a pong within a second", request, err)
		}
	}
}

// A client that leaves cancels its request within 10 ms, whatever it waits for.
func TestForwardHTTP_LeavingCancels(t *testing.T) {
	for _, tt := range []struct{ name, request string }{
		{"before the answer", "GET /think HTTP/1.1\r\nHost: x\r\n\r\n"},
		{"in a pause of the answer", "GET /pause HTTP/1.1\r\nHost: x\r\n\r\n"},
		{"behind an upload", "POST /think HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"},
		{"in an upload", "POST /think HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nab"},
		{"with another request behind", "GET /think HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gone := make(chan time.Time, 1)
				c := forward(t, "http://local:80", func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/pause" {
						_, _ = io.WriteString(w, "event")
						_ = http.NewResponseController(w).Flush()
					}
					if _, err := io.Copy(io.Discard, r.Body); err == nil {
						<-r.Context().Done()
					}
					gone <- time.Now()
				})
				for _, after := range []time.Duration{0, time.Minute} {
					s := bareStream(c, "t"+after.String())
					s.write(tt.request)
					time.Sleep(after)
					left := time.Now()
					s.Close(transport.CloseGoingAway, "the client went away")
					if d := receive(t, gone, "the end of the request").Sub(left); d > 10*time.Millisecond {
						t.Errorf("the service's request ended %v after the client left at %v", d, after)
					}
				}
			})
		})
	}
}

// A dial of the service that takes long ends when its client leaves.
func TestForwardHTTP_LeavingCancelsTheDial(t *testing.T) {
	synctest.Test(t, testForwardHTTPLeavingCancelsTheDial)
}
func testForwardHTTPLeavingCancelsTheDial(t *testing.T) {
	r := newFakeRelay(t)
	ended := make(chan time.Time, 1)
	c := serving(t, r, agent.ForwardHTTPWith("http://local:80", agent.HTTPOptions{DialContext: dialThatHangs(ended)}))
	s := bareStream(c, "t")
	s.write(get)
	time.Sleep(time.Second)
	left := time.Now()
	s.Close(transport.CloseGoingAway, "")
	if d := receive(t, ended, "the end of the dial").Sub(left); d != 0 {
		t.Errorf("the dial ended %v after the client left", d)
	}
}

// What comes while the service thinks is read ahead, and not lost: here two
// more requests, in messages of any size.
func TestForwardHTTP_ReadAheadIsKept(t *testing.T) { synctest.Test(t, testForwardHTTPReadAheadIsKept) }
func testForwardHTTPReadAheadIsKept(t *testing.T) {
	c := forward(t, "http://local:80", func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(time.Second)
		p, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.URL.Path+" "+string(p[max(0, len(p)-5):]))
	})
	long := strings.Repeat("x", 10_000) + "whole"
	requests := "GET /1 HTTP/1.1\r\nHost: x\r\n\r\n" +
		"POST /2 HTTP/1.1\r\nHost: x\r\nContent-Length: 10005\r\n\r\n" + long +
		"GET /3 HTTP/1.1\r\nHost: x\r\n\r\n"
	for _, size := range []int{1 << 20, 5_000, 100} {
		conn, _ := dialStream(c)(t.Context(), "", "")
		data := conn.(*transport.StreamConn).Conn()
		go func() {
			for p := []byte(requests); len(p) > 0; p = p[min(size, len(p)):] {
				if data.Write(transport.Binary, p[:min(size, len(p))]) != nil {
					return
				}
				time.Sleep(3 * time.Millisecond)
			}
		}()
		br := bufio.NewReader(conn)
		for _, want := range []string{"/1 ", "/2 whole", "/3 "} {
			res, err := http.ReadResponse(br, nil)
			if got := body(t, res, err); got != want {
				t.Errorf("messages of %d bytes: answer %q, want %q", size, got, want)
			}
		}
		_ = conn.Close()
	}
}

// A client that half-closes behind its request still gets the answer.
func TestForwardHTTP_HalfClosedRequest(t *testing.T) {
	synctest.Test(t, testForwardHTTPHalfClosedRequest)
}
func testForwardHTTPHalfClosedRequest(t *testing.T) {
	c := forward(t, "http://local:80", func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(time.Minute)
		_, _ = io.WriteString(w, "late")
	})
	s := bareStream(c, "t")
	s.write(get)
	s.eof()
	m, err := s.message()
	if !strings.HasSuffix(m, "\r\n\r\nlate") || err != nil {
		t.Errorf("the answer is %q, %v", m, err)
	}
	s.wantEnd(transport.CloseNormal, "")
}

// A client that has half-closed is still there: its pings are answered, and it
// cancels its request when it leaves, also one that is upgraded by then.
func TestForwardHTTP_HalfClosedThenLeaves(t *testing.T) {
	for _, tt := range []struct {
		name, request string
		after         time.Duration // of the half close
	}{
		{"at once", get, 0},
		{"while the service thinks", get, time.Second},
		{"another request behind", get + get, 0},
		{"behind an upload", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0},
		{"upgraded", upgradeRequest, 0},
		{"upgraded later", upgradeRequest, time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gone := make(chan time.Time, 2)
				c := forward(t, "http://local:80", func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Upgrade") != "" {
						time.Sleep(10 * time.Second)
						conn, _, _ := http.NewResponseController(w).Hijack()
						defer conn.Close()
						for err := error(nil); err == nil; time.Sleep(100 * time.Millisecond) {
							_, err = io.WriteString(conn, switching)
						}
					} else {
						_, _ = io.Copy(io.Discard, r.Body)
						<-r.Context().Done()
					}
					gone <- time.Now()
				})
				s := bareStream(c, "t")
				s.write(tt.request)
				time.Sleep(tt.after)
				s.eof()
				pongs := make(chan error, 1)
				go func() {
					for range 2 { // before and after an upgrade
						time.Sleep(5 * time.Second)
						ctx, cancel := context.WithTimeout(t.Context(), time.Second)
						pongs <- s.Ping(ctx)
						cancel()
						time.Sleep(10 * time.Second)
					}
					close(pongs)
				}()
				go func() {
					for {
						if _, err := s.message(); err != nil {
							return
						}
					}
				}()
				for err := range pongs {
					if err != nil {
						t.Errorf("ping: %v, want a pong within a second", err)
					}
				}
				left := time.Now()
				s.Close(transport.CloseGoingAway, "")
				if d := receive(t, gone, "the end of the request").Sub(left); d > time.Second {
					t.Errorf("the service's request ended %v after the client left", d)
				}
			})
		})
	}
}

// A text message that is no half close ends the stream, also one that comes
// while the service thinks.
func TestForwardHTTP_TextWhileTheServiceThinks(t *testing.T) {
	synctest.Test(t, testForwardHTTPTextWhileTheServiceThinks)
}
func testForwardHTTPTextWhileTheServiceThinks(t *testing.T) {
	gone := make(chan time.Time, 1)
	c := forward(t, "http://local:80", func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		gone <- time.Now()
	})
	s := bareStream(c, "t")
	s.write(get)
	time.Sleep(time.Second)
	sent := time.Now()
	if err := s.Write(transport.Text, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(time.Hour, s.CloseNow)
	s.wantEnd(transport.CloseUnsupported, "a text message in a byte stream")
	if d := receive(t, gone, "the end of the request").Sub(sent); d > time.Second {
		t.Errorf("the service's request ended %v after the message", d)
	}
}

// The end of Run ends what is under way, and idle connections.
func TestForwardHTTP_Stop(t *testing.T) {
	for _, tt := range []struct{ name, request string }{
		{"before the answer", "GET /think HTTP/1.1\r\nHost: x\r\n\r\n"},
		{"idle", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
		{"in an upload that is not read", "POST /think HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n" + strings.Repeat("x", 299_999)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFakeRelay(t)
				r.pongs = true
				ended := make(chan struct{})
				r.serve("local:80", &http.Server{
					Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if r.URL.Path == "/think" {
							time.Sleep(time.Minute)
						}
					}),
				})
				cfg := r.config()
				cfg.Services = map[string]agent.Handler{"": agent.ForwardHTTPWith("http://local:80", agent.HTTPOptions{DialContext: r.net.DialContext})}
				a := run(t, cfg)
				s := bareStream(r.next(1), "t")
				go func() {
					defer close(ended)
					for {
						if _, err := s.message(); err != nil {
							return
						}
					}
				}()
				s.write(tt.request)
				time.Sleep(time.Second)
				began := time.Now()
				_ = a.stop()
				<-ended
				if d := time.Since(began); d > time.Second {
					t.Errorf("Run took %v to end", d)
				}
				time.Sleep(time.Minute) // the service's handler
			})
		})
	}
}

// An embedder's dialer that panics ends the stream, and nothing else.
func TestForwardHTTP_DialerPanics(t *testing.T) { synctest.Test(t, testForwardHTTPDialerPanics) }
func testForwardHTTPDialerPanics(t *testing.T) {
	r := newFakeRelay(t)
	c := serving(t, r, agent.ForwardHTTPWith("http://local:80", agent.HTTPOptions{DialContext: dialThatPanics}))
	for _, ticket := range []string{"t1", "t2"} {
		s := bareStream(c, ticket)
		s.write(get)
		s.wantEnd(transport.CloseInternal, "forwarding panicked")
	}
}

// A request whose service is being reached when Run ends gets no answer: its
// service is not down.
func TestForwardHTTP_RunEndsWhileTheServiceIsReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRelay(t)
		r.pongs = true
		cfg := r.config()
		cfg.Services = map[string]agent.Handler{"": agent.ForwardHTTPWith("http://local:80", agent.HTTPOptions{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
		})}
		a := run(t, cfg)
		c := r.next(1)
		c.dial(transport.StreamDial{Ticket: "t", Proto: transport.ProtoHTTP})
		s := r.stream()
		s.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		synctest.Wait()
		_ = a.stop()
		if m, err := s.message(); err == nil {
			t.Errorf("the answer is %q, want the end of the stream", m)
		}
	})
}
