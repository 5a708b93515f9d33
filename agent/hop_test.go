package agent_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/internal/memnet"
)

// countingDialer counts the connections to services.
type countingDialer struct {
	net   *memnet.Network
	dials atomic.Int64
}

func (d *countingDialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d.dials.Add(1)
	return d.net.DialContext(ctx, network, addr)
}

// hopTo runs an agent that forwards to srv at "local:80".
func hopTo(t *testing.T, srv *http.Server) (*http.Client, *countingDialer) {
	r := newFakeRelay(t)
	r.serve("local:80", srv)
	d := &countingDialer{net: &r.net}
	return httpClient(serving(t, r, agent.ForwardHTTPWith("http://local:80", agent.HTTPOptions{DialContext: d.dial}))), d
}

// Report C: requests whose rhythm equals the service's keep-alive.
func TestHop_Cadence(t *testing.T) {
	for _, idle := range []time.Duration{500 * time.Millisecond, time.Second, 5 * time.Second} {
		for _, every := range []time.Duration{500 * time.Millisecond, time.Second, 4 * time.Second, 5 * time.Second, 6 * time.Second} {
			t.Run(fmt.Sprintf("%v keep-alive, every %v", idle, every), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					client, _ := hopTo(t, &http.Server{IdleTimeout: idle, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						_, _ = io.Copy(w, r.Body)
					})})
					for i := range 50 {
						for _, method := range []string{"POST", "GET"} {
							req, _ := http.NewRequest(method, "http://any/", strings.NewReader("x"))
							res, err := client.Do(req)
							if got := body(t, res, err); res.StatusCode != 200 || got != "x" {
								t.Fatalf("%s %d: %d %q", method, i, res.StatusCode, got)
							}
						}
						// Around the very moment, on both sides of it.
						time.Sleep(every + time.Duration(i%5-2)*time.Microsecond)
					}
				})
			})
		}
	}
}

// A service that gives an idle connection up may say so with a 408, which is no
// answer to the request that it crosses with: that is sent again, if it may be.
func TestHop_408OnAnIdleConnection(t *testing.T) {
	const (
		closing = "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
		old     = "HTTP/1.0 408 Request Time-out\r\nCache-Control: no-cache\r\n\r\n"
		keeping = "HTTP/1.1 408 x\r\nContent-Length: 0\r\n\r\n"
	)
	post := "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na"
	for _, tt := range []struct {
		name, request, answer string
		want                  int
	}{
		{"crossing", get, closing, 200},
		{"of HTTP/1.0", get, old, 200},
		{"not to be sent again", post, closing, 408},
		{"an answer", get, keeping, 408},
		{"an answer behind another", get, "HTTP/1.1 100 x\r\n\r\n" + closing, 408},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFakeRelay(t)
				d := rawService(t, r, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nOPEN", tt.answer, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				c := serving(t, r, agent.ForwardHTTPWith("http://local:80", agent.HTTPOptions{DialContext: d.dial}))
				_, _ = raw(t, c, get)
				if res, _ := raw(t, c, tt.request); res.StatusCode != tt.want {
					t.Errorf("the client got %d, want %d", res.StatusCode, tt.want)
				}
			})
		})
	}
}

// On a connection of its own a 408 is the answer.
func TestHop_408OnAFreshConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRelay(t)
		d := rawService(t, r, "HTTP/1.1 408 x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		c := serving(t, r, agent.ForwardHTTPWith("http://local:80", agent.HTTPOptions{DialContext: d.dial}))
		if res, _ := raw(t, c, get); res.StatusCode != 408 {
			t.Errorf("the client got %d, want 408", res.StatusCode)
		}
	})
}

// What may be reused, and after how long.
func TestHop_Reuse(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for _, tt := range []struct {
		name      string
		method    string
		body      string
		header    string
		keepAlive string // the service's header
		pause     time.Duration
		reused    bool
	}{
		{"POST at once", "POST", "x", "", "", 0, true},
		{"POST within 250ms", "POST", "x", "", "", 250*ms - 1, true},
		{"POST after 250ms", "POST", "x", "", "", 250*ms + 1, false},
		{"POST without a body", "POST", "", "", "", 250*ms + 1, false},
		{"GET", "GET", "", "", "", 80 * s, true},
		{"HEAD", "HEAD", "", "", "", 80 * s, true},
		{"OPTIONS", "OPTIONS", "", "", "", 80 * s, true},
		{"GET with a body", "GET", "x", "", "", 250*ms + 1, false},
		{"PUT", "PUT", "x", "", "", 250*ms + 1, false},
		{"DELETE", "DELETE", "", "", "", 250*ms + 1, false},
		{"POST with a key", "POST", "", "Idempotency-Key", "", 80 * s, true},
		{"POST with a key and a body", "POST", "x", "Idempotency-Key", "", 250*ms + 1, false},
		{"POST, announced 5s", "POST", "x", "", "timeout=5", 4*s - 1, true},
		{"POST, announced 5s, too late", "POST", "x", "", "timeout=5", 4*s + 1, false},
		{"GET, announced 5s, too late", "GET", "", "", "timeout=5, max=100", 4*s + 1, false},
		{"POST, announced 2s", "POST", "x", "", "max=7, Timeout=2", s - 1, true},
		{"POST, announced 1s", "POST", "x", "", "timeout=1", 0, false},
		{"GET, announced 0s", "GET", "", "", "timeout=0", 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, d := hopTo(t, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					if tt.keepAlive != "" {
						w.Header().Set("Keep-Alive", tt.keepAlive)
					}
				})})
				do := func() {
					var b io.Reader
					if tt.body != "" {
						b = strings.NewReader(tt.body)
					}
					req, _ := http.NewRequest(tt.method, "http://any/", b)
					if tt.header != "" {
						req.Header.Set(tt.header, "k")
					}
					res, err := client.Do(req)
					_ = body(t, res, err)
				}
				do() // from here on it is known what the service announces
				do()
				synctest.Wait()
				before := d.dials.Load()
				time.Sleep(tt.pause)
				do()
				if reused := d.dials.Load() == before; reused != tt.reused {
					t.Errorf("reused %v after %v, want %v", reused, tt.pause, tt.reused)
				}
			})
		})
	}
}

// A service that announces a time and then does not is taken at its last word.
func TestHop_AnnouncementEnds(t *testing.T) { synctest.Test(t, testHopAnnouncementEnds) }
func testHopAnnouncementEnds(t *testing.T) {
	var announce atomic.Bool
	announce.Store(true)
	client, d := hopTo(t, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if announce.Load() {
			w.Header().Set("Keep-Alive", "timeout=60")
		}
	})})
	post := func() bool {
		before := d.dials.Load()
		res, err := client.Post("http://any/", "", nil)
		_ = body(t, res, err)
		return d.dials.Load() == before
	}
	post()
	post()
	time.Sleep(30 * time.Second)
	announce.Store(false)
	if !post() {
		t.Error("the connection was not reused, though announced for 60s")
	}
	time.Sleep(30 * time.Second)
	if post() {
		t.Error("the connection was reused, though its last answer announced nothing")
	}
	time.Sleep(30 * time.Second)
	if post() {
		t.Error("a connection was reused after 30s, though nothing was announced")
	}
}

// A GET that finds its connection closed is sent again once; a POST that was
// sent is never sent again.
func TestHop_RetriesOnce(t *testing.T) { synctest.Test(t, testHopRetriesOnce) }
func testHopRetriesOnce(t *testing.T) {
	r := newFakeRelay(t)
	var got atomic.Int64
	r.local(func(conn net.Conn) {
		go func() {
			defer conn.Close()
			br := bufio.NewReader(conn)
			for i := range 2 { // the second request of a connection is read, and answered by a close
				req, err := http.ReadRequest(br)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, req.Body)
				got.Add(1)
				if i == 0 {
					_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
				}
			}
		}()
	})
	client := httpClient(serving(t, r, agent.ForwardHTTPWith("http://local:80", agent.HTTPOptions{DialContext: r.net.DialContext})))
	for i, tt := range []struct {
		method string
		status int
		got    int64
	}{
		{"GET", 204, 1},
		{"GET", 204, 3},  // again, on a fresh connection
		{"POST", 502, 4}, // not again: it may have been carried out
		{"POST", 204, 5},
	} {
		req, _ := http.NewRequest(tt.method, "http://any/", strings.NewReader(""))
		res, err := client.Do(req)
		_ = body(t, res, err)
		if res.StatusCode != tt.status || got.Load() != tt.got {
			t.Errorf("request %d, %s: %d, and the service has read %d requests; want %d, %d", i, tt.method, res.StatusCode, got.Load(), tt.status, tt.got)
		}
	}
}

func TestKeepAliveTimeout(t *testing.T) {
	for _, tt := range []struct {
		value string
		want  time.Duration
		ok    bool
	}{
		{"timeout=5", 5 * time.Second, true},
		{" max=3 , TIMEOUT = 7", 7 * time.Second, true},
		{"timeout=0", 0, true},
		{"timeout=-1", 0, false},
		{"timeout", 0, false},
		{"timeout=99999999999999", 0, false},
		{"max=5", 0, false},
		{"", 0, false},
	} {
		d, ok := agent.KeepAliveTimeout(tt.value)
		if d != tt.want || ok != tt.ok {
			t.Errorf("Keep-Alive: %s is %v, %v; want %v, %v", tt.value, d, ok, tt.want, tt.ok)
		}
	}
}
