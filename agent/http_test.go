package agent_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/transport"
)

// httpClient is a client of an HTTP service, as the relay is one: its
// connections are streams.
func httpClient(c *fakeControl) *http.Client {
	var mu sync.Mutex
	n := 0
	dial := func(context.Context, string, string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		n++
		c.dial(transport.StreamDial{Ticket: fmt.Sprintf("h%d", n), Proto: transport.ProtoHTTP})
		return transport.NewStreamConn(c.relay.stream().Conn), nil
	}
	tr := &http.Transport{DialContext: dial, DisableCompression: true, MaxIdleConnsPerHost: 100}
	c.relay.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// forward runs an agent that forwards to srv, and returns its client.
func forward(t *testing.T, srv *http.Server, target string) (*fakeRelay, *http.Client) {
	r := newFakeRelay(t)
	if srv != nil {
		r.serve("local:80", srv)
	}
	cfg := r.config()
	cfg.Services = map[string]agent.Handler{"": agent.ForwardHTTPWith(target, agent.HTTPOptions{DialContext: r.net.DialContext})}
	run(t, cfg)
	return r, httpClient(r.next(1))
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

func TestForwardHTTP_Request(t *testing.T) { synctest.Test(t, testForwardHTTPRequest) }
func testForwardHTTPRequest(t *testing.T) {
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s", r.Method, r.RequestURI, r.Host, p)
	})}
	_, client := forward(t, srv, "http://local:80")
	res, err := client.Post("http://any/a%2Fb?c=%20&d", "text/plain", strings.NewReader("hello"))
	if got, want := body(t, res, err), "POST /a%2Fb?c=%20&d local:80 hello"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
