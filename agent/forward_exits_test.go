package agent_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/relaytest"
)

// exit is a way in which an exchange ends before its service has read the
// request's body.
type exit struct {
	name string
	line string // of the request; empty: a POST
	head string // lines of its header, beside Host and the framing

	// The service: it answers the head of the request and ends, or stays with
	// OPEN behind the answer.
	answer string
	down   bool // it refuses this request's connection, and no other
	panics bool // its dialer does
	unread bool // it closes the connection at once
	stale  bool // a connection that it has kept takes nothing

	kept bool // the stream must be there for the next request
}

const posted = "POST /first HTTP/1.1"

var exits = []exit{
	{name: "the service is down", down: true, kept: true},
	{name: "the dialer panics", panics: true},
	{name: "a kept connection takes nothing, then the service is down", stale: true, down: true, kept: true},
	{name: "a kept connection takes nothing", stale: true, answer: "HTTP/1.1 413 x\r\nContent-Length: 0\r\n\r\nOPEN", kept: true},
	{name: "down for HEAD", line: "HEAD /first HTTP/1.1", down: true, kept: true},
	{name: "down for what may be sent again", head: "Idempotency-Key: 1\r\n", down: true, kept: true},
	{name: "down for HTTP/1.0", line: "POST /first HTTP/1.0", down: true},
	{name: "down for who wants a close", head: "Connection: close\r\n", down: true},
	{name: "closed at once", unread: true, kept: true},
	{name: "closed", kept: true},
	{name: "no HTTP", answer: "SSH-2.0-x\r\n\r\nOPEN", kept: true},
	{name: "half a head", answer: "HTTP/1.1 200", kept: true},
	{name: "ambiguous", answer: "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nOPEN", kept: true},
	{name: "17 informational", answer: strings.Repeat("HTTP/1.1 103 x\r\n\r\n", 17) + "OPEN", kept: true},
	{name: "refused", answer: "HTTP/1.1 413 x\r\nContent-Length: 3\r\n\r\nbigOPEN", kept: true},
	{name: "refused, and closed", answer: "HTTP/1.1 413 x\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig", kept: true},
	{name: "refused without a body", answer: "HTTP/1.1 204 x\r\n\r\nOPEN", kept: true},
	{name: "refused in chunks", answer: "HTTP/1.1 413 x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nbig\r\n0\r\n\r\nOPEN", kept: true},
	{name: "half an answer", answer: "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab"},
	{name: "bad trailers of the answer", answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA\r\n\r\nOPEN"},

	{name: "expecting, down", head: "Expect: 100-continue\r\n", down: true},
	{name: "expecting, closed", head: "Expect: 100-continue\r\n"},
	{name: "expecting, refused", head: "Expect: 100-continue\r\n", answer: "HTTP/1.1 417 x\r\nContent-Length: 0\r\n\r\nOPEN"},
	{name: "expecting, asked for, closed", head: "Expect: 100-continue\r\n", answer: "HTTP/1.1 100 x\r\n\r\n", kept: true},
	{name: "expecting, asked for, refused", head: "Expect: 100-continue\r\n", answer: "HTTP/1.1 100 x\r\n\r\nHTTP/1.1 413 x\r\nContent-Length: 0\r\n\r\nOPEN", kept: true},

	{name: "upgrade, down", head: "Connection: Upgrade\r\nUpgrade: echo\r\n", down: true, kept: true},
	{name: "upgrade, closed", head: "Connection: Upgrade\r\nUpgrade: echo\r\n", kept: true},
	{name: "upgrade, declined", head: "Connection: Upgrade\r\nUpgrade: echo\r\n", answer: "HTTP/1.1 400 x\r\nContent-Length: 0\r\n\r\nOPEN", kept: true},
	{name: "upgrade, to something else", head: "Connection: Upgrade\r\nUpgrade: other\r\n", answer: switching + "OPEN", kept: true},

	{name: "a path that leaves the base", line: "POST /../first HTTP/1.1"},
	{name: "no path", line: "POST first HTTP/1.1"},
	{name: "CONNECT", line: "CONNECT x:1 HTTP/1.1"},
	{name: "a malformed line", head: "A b\r\n"},
	{name: "another length", head: "Content-Length: 1\r\n"},
	{name: "another encoding", head: "Transfer-Encoding: gzip\r\n"},
	{name: "another version", line: "POST /first HTTP/1.2"},
	{name: "two hosts", head: "Host: y\r\n"},
	{name: "a header of a MiB", head: "A: " + strings.Repeat("x", 1<<20) + "\r\n"},
}

// However an exchange ends: the body that its service did not read is never
// taken for a request. What is read behind it is the next request, which gets
// its own answer, or the stream has ended.
func TestForwardHTTP_UnreadBodyIsNoRequest(t *testing.T) {
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	chunk := fmt.Sprintf("%x\r\n%s\r\n", len(smuggled), smuggled)
	for _, tt := range exits {
		for _, b := range []exitBody{
			{"length", fmt.Sprintf("Content-Length: %d\r\n", len(smuggled)), smuggled, false},
			{"chunked", "Transfer-Encoding: chunked\r\n", chunk + "0\r\n\r\n", false},
			{"bad chunk", "Transfer-Encoding: chunked\r\n", "x\r\n" + smuggled, true},
			{"bad trailers", "Transfer-Encoding: chunked\r\n", "0\r\nbad\r\n\r\n" + smuggled, true},
		} {
			for _, sent := range []string{"with the head", "behind the head", "behind the answer"} {
				t.Run(strings.Join([]string{tt.name, b.name, sent}, "/"), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { testExit(t, tt, b, sent) })
				})
			}
		}
	}
}

// exitBody is the body of a request: bytes that look like another one.
type exitBody struct {
	name, framing, sent string
	malformed           bool // its end cannot be known: the stream ends
}

func testExit(t *testing.T, tt exit, b exitBody, sent string) {
	r := newFakeRelay(t)
	service := &exitService{exit: tt}
	r.local(service.accept)
	h := agent.ForwardHTTPWith("http://local:80/base", agent.HTTPOptions{DialContext: service.dialer(r)})
	conn, _ := dialStream(serving(t, r, h))(t.Context(), "", "")
	defer conn.Close()
	br := bufio.NewReader(conn)
	// next reads an answer, and its body; an error is the end of the stream.
	next := func(method string) (res *http.Response, continued bool, got string, err error) {
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		for {
			if res, err = http.ReadResponse(br, &http.Request{Method: method}); err != nil {
				return nil, continued, "", err
			}
			if res.StatusCode >= 200 {
				break
			}
			continued = continued || res.StatusCode == http.StatusContinue
		}
		p, err := io.ReadAll(res.Body)
		return res, continued, string(p), err
	}
	write := func(p string) { _, _ = io.WriteString(conn, p) } // the stream may have ended

	if tt.stale {
		write("GET /warm HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, _, got, err := next("GET"); got != "answer to /base/warm" {
			t.Fatalf("the request before got %q, %v", got, err)
		}
	}
	service.begun.Store(true)
	line := tt.line
	if line == "" {
		line = posted
	}
	first := line + "\r\nHost: x\r\n" + tt.head + b.framing + "\r\n"
	if sent == "with the head" {
		write(first + b.sent)
	} else {
		write(first)
	}
	if sent == "behind the head" {
		write(b.sent)
	}
	method, _, _ := strings.Cut(line, " ")
	answer, continued, _, err := next(method)
	if sent == "behind the answer" && err == nil {
		expecting := strings.Contains(tt.head, "Expect") && !continued
		if expecting && !answer.Close {
			t.Errorf("the client was not asked for its body, and not told that the stream ends: %v", answer.Header)
		}
		if !expecting {
			write(b.sent)
		}
	}
	kept := false
	if err == nil {
		time.Sleep(time.Second)
		write("GET /next HTTP/1.1\r\nHost: x\r\n\r\n")
		_, _, got, err := next("GET")
		kept = err == nil
		if kept && got != "answer to /base/next" {
			t.Errorf("the next request got %q", got)
		}
		if !b.malformed && kept == answer.Close {
			t.Errorf("the stream was kept: %v, but the answer says the opposite: %v", kept, answer.Header)
		}
	}
	if b.malformed && kept || !b.malformed && tt.kept && !kept {
		t.Errorf("the stream was kept: %v; the first answer ended with %v", kept, err)
	}
	_ = conn.Close()
	time.Sleep(time.Second)
	service.check(t)
}

// exitService is a service that meets the first request as the exit says, and
// answers all others.
type exitService struct {
	exit  exit
	begun atomic.Bool // the first request is on its way

	mu    sync.Mutex
	asked bool // for the first request's connection
	seen  []string
}

func (s *exitService) dialer(r *fakeRelay) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if s.isFirst() {
			switch {
			case s.exit.panics:
				panic("oops")
			case s.exit.down:
				return nil, syscall.ECONNREFUSED
			}
		}
		conn, err := r.net.DialContext(ctx, network, addr)
		return &exitConn{Conn: conn, deaf: func() bool { return s.exit.stale && s.begun.Load() && !s.wasAsked() }}, err
	}
}

// isFirst reports whether the first request's connection is made, once.
func (s *exitService) isFirst() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.begun.Load() && !s.asked
	s.asked = s.asked || first
	return first
}

func (s *exitService) wasAsked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// exitConn is a connection that takes nothing while it is deaf.
type exitConn struct {
	net.Conn
	deaf func() bool
}

func (c *exitConn) Write(p []byte) (int, error) {
	if c.deaf() {
		return 0, syscall.EPIPE
	}
	return c.Conn.Write(p)
}

func (s *exitService) accept(conn net.Conn) {
	if s.exit.unread && s.note("") == 1 {
		_ = conn.Close()
		return
	}
	go s.serve(conn)
}

// note records a request, and returns how many there are.
func (s *exitService) note(request string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, request)
	return len(s.seen)
}

func (s *exitService) serve(conn net.Conn) {
	defer conn.Close()
	br := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		s.note(req.RequestURI)
		if strings.HasSuffix(req.RequestURI, "/first") {
			answer, open := strings.CutSuffix(s.exit.answer, "OPEN")
			_, _ = io.WriteString(conn, answer)
			if !open {
				return
			}
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		if strings.HasSuffix(req.RequestURI, "/first") {
			continue
		}
		got := "answer to " + req.RequestURI
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(got), got)
	}
}

func (s *exitService) check(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, request := range s.seen {
		if strings.Contains(request, "/smuggled") {
			t.Errorf("the service was asked for %q", s.seen)
		}
	}
}

// A relay has sent the whole body and keeps the stream: the next client gets
// its own answer, not one to a part of somebody else's body.
func TestForwardHTTP_NextClientAfterAServiceWasDown(t *testing.T) {
	for _, sent := range []string{`{"a":1}`, "abc", "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"} {
		t.Run(sent, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := relaytest.NewServer(t, nil)
				defer s.Close()
				r := newFakeRelay(t) // its network only
				service := &exitService{exit: exit{down: true}}
				service.begun.Store(true)
				r.local(service.accept)
				s.StartAgent("h", map[string]agent.Handler{
					"": agent.ForwardHTTPWith("http://local:80", agent.HTTPOptions{DialContext: service.dialer(r)}),
				}, nil)
				if res, _, err := s.Do("POST", "/hosts/h/first", strings.NewReader(sent)); err != nil || res.StatusCode != 502 {
					t.Errorf("the upload got %v, %v; want 502", res, err)
				}
				res, got, err := s.Do("GET", "/hosts/h/next", nil)
				if err != nil || res.StatusCode != 200 || got != "answer to /next" {
					t.Errorf("the next client got %v %q, %v", res, got, err)
				}
				service.check(t)
			})
		})
	}
}
