package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/internal/memnet"
	"github.com/dialback/dialback/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var testKey = []byte("0123456789abcdef0123456789abcdef")

// world is a running app, and the way to it: whatever the host name of a URL,
// it leads there.
type world struct {
	t     *testing.T
	app   *app
	dial  func(ctx context.Context, network, addr string) (net.Conn, error)
	log   *logBuffer
	drain context.CancelFunc // SIGTERM
	ended chan error         // gets what run returned
}

// newWorld runs an app on a free port. The test calls close.
func newWorld(t *testing.T) *world {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	return startWorld(t, ln, func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	})
}

// newBubbleWorld runs an app on an in-memory network, for a synctest bubble,
// where hours cost nothing.
func newBubbleWorld(t *testing.T) *world {
	t.Helper()
	const addr = "app:80"
	network := &memnet.Network{}
	ln, err := network.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	return startWorld(t, ln, func(ctx context.Context, _, _ string) (net.Conn, error) {
		return network.DialContext(ctx, "tcp", addr)
	})
}

func startWorld(t *testing.T, ln net.Listener, dial func(ctx context.Context, network, addr string) (net.Conn, error)) *world {
	t.Helper()
	w := &world{t: t, dial: dial, log: &logBuffer{}, ended: make(chan error, 1)}
	var err error
	w.app, err = newApp(config{Key: testKey, Domain: "example.test", Log: slog.New(slog.NewTextHandler(w.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w.drain = cancel
	go func() { w.ended <- w.app.run(ctx, ln) }()
	return w
}

// close ends the app at once, and checks that no token is in its log.
func (w *world) close() {
	w.t.Helper()
	w.app.relay.Close()
	w.drain()
	if err := <-w.ended; err != nil {
		w.t.Errorf("run: %v", err)
	}
	w.wantNoToken()
}

// wantNoToken checks the log for the part that all tokens of these tests have.
func (w *world) wantNoToken() {
	w.t.Helper()
	begin := base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"alice"`))[:18]
	if log := w.log.String(); strings.Contains(log, begin) {
		w.t.Errorf("the log has a token:\n%s", log)
	}
}

// transport is one of its own for each use: it keeps nothing.
func (w *world) transport() *http.Transport {
	return &http.Transport{DialContext: w.dial, DisableKeepAlives: true, DisableCompression: true}
}

// token signs claims of alice that last an hour.
func token(role string, hosts ...string) string { return tokenFor(time.Hour, role, hosts...) }

func tokenFor(life time.Duration, role string, hosts ...string) string {
	return claims{Subject: "alice", Role: role, Hosts: hosts, Expires: time.Now().Add(life).Unix()}.sign(testKey)
}

// runHost attaches a host until stop is called.
func (w *world) runHost(id string, services map[string]agent.Handler) (stop func()) {
	w.t.Helper()
	online := make(chan struct{}, 1)
	a, err := agent.New(agent.Config{
		RelayURL:  "http://example.test/relay",
		HostID:    id,
		Token:     func(context.Context) (string, error) { return token(roleHost, id), nil },
		Services:  services,
		Transport: w.transport(),
		Hooks:     agent.Hooks{Online: func(agent.Online) { online <- struct{}{} }},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = a.Run(ctx) }()
	select {
	case <-online:
	case <-time.After(time.Minute):
		w.t.Fatalf("host %s is not online after a minute; log:\n%s", id, w.log)
	}
	return func() { cancel(); <-done }
}

// get is a request with these headers, in pairs; it returns status and body.
func (w *world) get(url string, headers ...string) (int, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := w.transport().RoundTrip(req)
	if err != nil {
		w.t.Fatalf("GET %s: %v", url, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatalf("GET %s: body: %v", url, err)
	}
	return resp.StatusCode, string(body)
}

// open opens a WebSocket with these headers, in pairs.
func (w *world) open(url string, headers ...string) transport.Conn {
	w.t.Helper()
	h := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		h.Add(headers[i], headers[i+1])
	}
	conn, err := transport.Dial(w.t.Context(), url, &transport.DialOptions{Header: h, Transport: w.transport()})
	if err != nil {
		w.t.Fatalf("WebSocket %s: %v", url, err)
	}
	return conn
}

// read returns the next message.
func read(conn transport.Conn) (string, error) {
	_, r, err := conn.Reader()
	if err != nil {
		return "", err
	}
	p, err := io.ReadAll(r)
	return string(p), err
}

// wantEcho sends a message and wants it back.
func wantEcho(t *testing.T, conn transport.Conn, message string) {
	t.Helper()
	if err := conn.Write(transport.Text, []byte(message)); err != nil {
		t.Fatalf("write: %v", err)
	}
	if got, err := read(conn); got != message || err != nil {
		t.Fatalf("echo of %q is %q, %v", message, got, err)
	}
}

// site is a host's web site: /echo is a WebSocket, everything else tells what
// the host got to see.
func site() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/echo" {
			echo(w, r)
			return
		}
		_, _ = io.WriteString(w, strings.Join([]string{
			r.RequestURI, "user " + strings.Join(r.Header["X-User"], "+"),
			"authorization " + r.Header.Get("Authorization"), "cookies " + r.Header.Get("Cookie"),
		}, "\n"))
	})
}

func echo(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = ws.CloseNow() }()
	err = ws.Write(r.Context(), websocket.MessageText, []byte("for "+r.RequestURI))
	for err == nil {
		var typ websocket.MessageType
		var p []byte
		if typ, p, err = ws.Read(r.Context()); err == nil {
			err = ws.Write(r.Context(), typ, p)
		}
	}
}

// logBuffer is a log that several goroutines write.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
