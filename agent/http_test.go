package agent_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/transport"
)

// httpClient is a client of an HTTP service, as the relay is one: its
// connections are streams.
func httpClient(c *fakeControl) *http.Client {
	tr := &http.Transport{DialContext: dialStream(c), DisableCompression: true, MaxIdleConnsPerHost: 100, ExpectContinueTimeout: time.Minute}
	c.relay.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// dialStream makes a stream of the default HTTP service for each call.
func dialStream(c *fakeControl) func(context.Context, string, string) (net.Conn, error) {
	var mu sync.Mutex
	n := 0
	return func(context.Context, string, string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		n++
		c.dial(transport.StreamDial{Ticket: fmt.Sprintf("h%d", n), Proto: transport.ProtoHTTP})
		return transport.NewStreamConn(c.relay.stream().Conn), nil
	}
}

// serving runs an agent whose default service is h, and returns what makes
// streams to it.
func serving(t *testing.T, r *fakeRelay, h agent.Handler) *fakeControl {
	r.pongs = true
	cfg := r.config()
	cfg.Services = map[string]agent.Handler{"": h}
	run(t, cfg)
	return r.next(1)
}

// forward runs an agent that forwards to target, where h answers "local:80".
func forward(t *testing.T, target string, h http.HandlerFunc) *fakeControl {
	r := newFakeRelay(t)
	if h != nil {
		r.serve("local:80", &http.Server{Handler: h})
	}
	return serving(t, r, agent.ForwardHTTPWith(target, agent.HTTPOptions{DialContext: r.net.DialContext}))
}

func body(t *testing.T, res *http.Response, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	p, err := io.ReadAll(res.Body)
	if err != nil {
		t.Errorf("body: %v", err)
	}
	return string(p)
}

// raw sends a request as it is on a stream of its own, and returns the answer.
func raw(t *testing.T, c *fakeControl, request string) (*http.Response, string) {
	t.Helper()
	conn, _ := dialStream(c)(t.Context(), "", "")
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	return res, body(t, res, err)
}

func TestHTTP_Handler(t *testing.T) { synctest.Test(t, testHTTPHandler) }
func testHTTPHandler(t *testing.T) {
	r := newFakeRelay(t)
	c := serving(t, r, agent.HTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/panic" {
			io.WriteString(w, "half")
			panic("oops")
		}
		info, ok := agent.StreamInfoFrom(r.Context())
		fmt.Fprintf(w, "%v %v", info, ok)
	})))
	client := httpClient(c)
	for range 3 {
		res, err := client.Get("http://any/")
		if got := body(t, res, err); got != "{s-h1 } true" {
			t.Errorf("got %q, want the same stream each time", got)
		}
	}
	if res, err := client.Post("http://any/panic", "", nil); err == nil {
		t.Errorf("an answer of a handler that panicked: %v", res.Status)
	}
	res, err := client.Get("http://any/")
	if got := body(t, res, err); got != "{s-h2 } true" {
		t.Errorf("got %q, want another stream after a panic", got)
	}
}

// The context of a request ends when its client leaves, also while nobody reads
// the request's body. That of a stream which the handler has taken over is its
// own until it returns.
func TestHTTP_ContextEndsWithTheClient(t *testing.T) {
	for _, tt := range []struct {
		name, request string
		hijack        bool
	}{
		{"no body", get, false},
		{"a body that is not read", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nten bytes!", false},
		{"a body of which half has come", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nfive!", false},
		{"taken over", get, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				requests := make(chan context.Context, 1)
				release := make(chan struct{})
				c := serving(t, newFakeRelay(t), agent.HTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if tt.hijack {
						conn, _, err := http.NewResponseController(w).Hijack()
						if err != nil {
							t.Error(err)
							return
						}
						defer conn.Close()
					}
					requests <- r.Context()
					<-release
				})))
				s := bareStream(c, "t")
				s.write(tt.request)
				ctx := receive(t, requests, "a request")
				time.Sleep(time.Hour)
				if ctx.Err() != nil {
					t.Fatalf("the context ended with %v before its client left", ctx.Err())
				}
				s.Close(transport.CloseGoingAway, "")
				time.Sleep(time.Minute)
				if ended := ctx.Err() != nil; ended == tt.hijack {
					t.Errorf("the client has left: the context has ended: %v, want %v", ended, !tt.hijack)
				}
				close(release)
				synctest.Wait()
				if ctx.Err() == nil {
					t.Error("the handler has returned, its context has not ended")
				}
			})
		})
	}
}
