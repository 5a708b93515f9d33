package agent_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/internal/memnet"
	"github.com/dialback/dialback/transport"
)

// rawService answers each request with exactly these bytes, and closes then, or
// cuts the connection if the bytes end with "CUT". Those that end with "OPEN"
// leave it open. It counts connections.
func rawService(t *testing.T, r *fakeRelay, answers ...string) *countingDialer {
	t.Helper()
	script := make(chan string, len(answers))
	for _, a := range answers {
		script <- a
	}
	r.local(func(conn net.Conn) { go answerRaw(conn, script) })
	return &countingDialer{net: &r.net}
}

func answerRaw(conn net.Conn, script <-chan string) {
	defer conn.Close()
	br := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		answer := <-script
		open := strings.TrimSuffix(answer, "OPEN")
		cut := strings.TrimSuffix(open, "CUT")
		_, _ = io.WriteString(conn, cut)
		switch {
		case cut != open:
			time.Sleep(time.Second) // what was written is read
			conn.(*memnet.Conn).Cut()
			return
		case open == answer:
			return
		}
	}
}

// exchanged is what a stream brought for one request: the bytes, and how it
// ended, if it did.
func exchanged(t *testing.T, c *fakeControl, request string) (string, *transport.CloseError) {
	t.Helper()
	conn, _ := dialStream(c)(t.Context(), "", "")
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(time.Minute, func() { _ = conn.SetReadDeadline(time.Now()) })
	p, err := io.ReadAll(conn)
	var ended *transport.CloseError
	if !errors.As(err, &ended) && err == nil {
		ended = &transport.CloseError{Code: transport.CloseNormal}
	}
	return string(p), ended
}

const (
	get  = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	head = "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n"
)

// Exact bytes of a service, and what the client gets of them. Nothing
// ambiguous passes, and nothing truncated looks complete.
func TestForwardHTTP_AnswerFraming(t *testing.T) {
	const (
		kept = "kept" // the stream waits for the next request
		cut  = "1011" // broken off
		bad  = "502"
	)
	long := strings.Repeat("x", 1<<20)
	for _, tt := range []struct {
		name, request, answer string
		want                  string // bytes, or bad
		end                   string
	}{
		{"length", get, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", kept},
		{"empty", get, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", kept},
		{"no reason", get, "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", kept},
		{"spelling and order", get, "HTTP/1.1 200 Fine by me\r\nx-B:  1 \r\nX-a: é\r\nx-B:2\r\nContent-Length: 0\r\n\r\n",
			"HTTP/1.1 200 Fine by me\r\nx-B: 1\r\nX-a: é\r\nx-B: 2\r\nContent-Length: 0\r\n\r\n", kept},
		{"bare line feeds", get, "HTTP/1.1 200 OK\nA: b\nContent-Length: 1\n\nx", "HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 1\r\n\r\nx", kept},
		{"folded line", get, "HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nA: b   c\r\nContent-Length: 0\r\n\r\n", kept},
		{"hop by hop", get, "HTTP/1.1 200 OK\r\nConnection: X-Hop, keep-alive\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nProxy-Authenticate: x\r\nUpgrade: h2\r\nTrailer: T\r\nContent-Length: 0\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", kept},
		{"a Connection that names 32 fields", get, "HTTP/1.1 200 OK\r\n" + named(32) + "A31: b\r\nA32: c\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nA32: c\r\nContent-Length: 0\r\n\r\n", kept},
		{"forged error", get, "HTTP/1.1 200 OK\r\ndialback-error: x\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", kept},
		{"chunked", get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n02;x=y\r\nde\r\n0\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0005\r\nabcde\r\n0\r\n\r\n", kept},
		{"empty chunked", get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", kept},
		{"trailers", get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A, Content-Length\r\n\r\n1\r\nx\r\n0\r\nA: 1\r\nB: 2\r\nContent-Length: 9\r\nDialback-Error: x\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n0001\r\nx\r\n0\r\nA: 1\r\nB: 2\r\n\r\n", kept},
		{"until the end", get, "HTTP/1.1 200 OK\r\n\r\nabc", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0003\r\nabc\r\n0\r\n\r\n", kept},
		{"HTTP/1.0", get, "HTTP/1.0 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", kept},
		{"HEAD", head, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", kept},
		{"HEAD of what is chunked", head, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", kept},
		{"204", get, "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n", kept},
		{"304", get, "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", kept},
		{"informational", get, "HTTP/1.1 103 Early Hints\r\nLink: x\r\nContent-Length: 3\r\nDialback-Error: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
			"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", kept},
		{"16 informational", get, strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 16) + "HTTP/1.1 204 x\r\n\r\n", "HTTP/1.1 204 x\r\n\r\n", kept},
		{"the same length twice", get, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", kept},
		{"to HTTP/1.0", "GET / HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nx", "1000"},
		{"to who wants a close", "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "HTTP/1.1 204 x\r\n\r\n", "HTTP/1.1 204 x\r\nConnection: close\r\n\r\n", "1000"},

		{"two lengths", get, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", bad, kept},
		{"a list of lengths", get, "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\nx", bad, kept},
		{"a signed length", get, "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\nx", bad, kept},
		{"an empty length", get, "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nx", bad, kept},
		{"length and chunked", get, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", bad, kept},
		{"chunked and length", head, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", "HTTP/1.1 502 Bad Gateway\r\n", kept},
		{"chunked twice", get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", bad, kept},
		{"another encoding", get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", bad, kept},
		{"chunked by HTTP/1.0", get, "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", bad, kept},
		{"a space before the colon", get, "HTTP/1.1 200 OK\r\nContent-Length : 1\r\n\r\nx", bad, kept},
		{"a folded first line", get, "HTTP/1.1 200 OK\r\n A: b\r\n\r\n", bad, kept},
		{"a bare carriage return", get, "HTTP/1.1 200 OK\r\nA: b\rContent-Length: 1\r\n\r\nx", bad, kept},
		{"a zero byte", get, "HTTP/1.1 200 OK\r\nA: b\x00\r\n\r\n", bad, kept},
		{"no colon", get, "HTTP/1.1 200 OK\r\nContent-Length\r\n\r\n", bad, kept},
		{"a Connection that names 33 fields", get, "HTTP/1.1 200 OK\r\n" + named(33) + "Content-Length: 0\r\n\r\n", bad, kept},
		{"another version", get, "HTTP/2.0 200 OK\r\n\r\n", bad, kept},
		{"another status", get, "HTTP/1.1 20 OK\r\n\r\n", bad, kept},
		{"a status below 100", get, "HTTP/1.1 099 OK\r\n\r\n", bad, kept},
		{"17 informational", get, strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 17) + "HTTP/1.1 204 x\r\n\r\n", bad, kept},
		{"half a head", get, "HTTP/1.1 200 OK\r\nContent-Le", bad, kept},
		{"a head of a MiB", get, "HTTP/1.1 200 OK\r\nA: " + long + "\r\n\r\n", bad, kept},
		{"a switch nobody asked for", get, switching + "OPEN", bad, kept},

		{"half a body", get, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab", cut},
		{"no body", get, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", cut},
		{"half a chunk", get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nab", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0002\r\nab\r\n", cut},
		{"no last chunk", get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0002\r\nab\r\n", cut},
		{"no end of trailers", get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nA: b\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0002\r\nab\r\n", cut},
		{"a bad trailer", get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nA\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0002\r\nab\r\n", cut},
		{"trailers that end with line feeds", get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\n\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0002\r\nab\r\n", cut},
		{"a trailer with a bare line feed", get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nA: b\nC: d\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0002\r\nab\r\n", cut},
		{"a bad chunk", get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n-1\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0002\r\nab\r\n", cut},
		{"a chunk that is longer than it says", get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0001\r\na\r\n", cut},
		{"a reset instead of the end", get, "HTTP/1.1 200 OK\r\n\r\nabcCUT", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0003\r\nabc\r\n", cut},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFakeRelay(t)
				d := rawService(t, r, tt.answer)
				c := serving(t, r, agent.ForwardHTTPWith("http://local:80", agent.HTTPOptions{DialContext: d.dial}))
				got, ended := exchanged(t, c, tt.request)
				end := kept
				if ended != nil {
					end = fmt.Sprint(int(ended.Code))
				}
				switch {
				case tt.want == bad && strings.HasPrefix(got, "HTTP/1.1 502 Bad Gateway\r\n") && strings.Contains(got, "Dialback-Error: service_down"):
				case strings.HasPrefix(tt.want, "HTTP/1.1 502") && strings.HasPrefix(got, tt.want) && strings.HasSuffix(got, "\r\n\r\n"):
				case got != tt.want:
					t.Errorf("the client got %q, want %q", got, tt.want)
				}
				if end != tt.end {
					t.Errorf("the stream is %s, want %s", end, tt.end)
				}
			})
		})
	}
}

// What a connection's last answer forbids, or left behind, is not met by the
// next request.
func TestForwardHTTP_ConnectionIsReused(t *testing.T) {
	const next = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext"
	for _, tt := range []struct {
		name, request, answer string
		reused                bool
	}{
		{"length", get, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", true},
		{"chunked", get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nA: b\r\n\r\n", true},
		{"HEAD", head, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n", true},
		{"204", get, "HTTP/1.1 204 x\r\n\r\n", true},
		{"HTTP/1.0 that keeps alive", get, "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n", true},
		{"HTTP/1.0", get, "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", false},
		{"close", get, "HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 0\r\n\r\n", false},
		{"a body of HEAD", head, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", false},
		{"a body of 204", get, "HTTP/1.1 204 x\r\nContent-Length: 1\r\n\r\nx", false},
		{"more than the length", get, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx" + next, false},
		{"more than the chunks", get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n\r\n", false},
		{"a head that made the buffer grow", get, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: " + strings.Repeat("x", 5000) + "\r\n\r\n", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFakeRelay(t)
				d := rawService(t, r, tt.answer+"OPEN", next+"OPEN")
				c := serving(t, r, agent.ForwardHTTPWith("http://local:80", agent.HTTPOptions{DialContext: d.dial}))
				_, _ = exchanged(t, c, tt.request)
				if got, _ := exchanged(t, c, get); got != next {
					t.Errorf("the next request got %q", got)
				}
				if reused := d.dials.Load() == 1; reused != tt.reused {
					t.Errorf("the connection was reused: %v, want %v", reused, tt.reused)
				}
			})
		})
	}
}

// Bytes that a service sends between two requests are no answer to the second.
func TestForwardHTTP_UnaskedBytes(t *testing.T) { synctest.Test(t, testForwardHTTPUnaskedBytes) }
func testForwardHTTPUnaskedBytes(t *testing.T) {
	const forged = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
	r := newFakeRelay(t)
	ln, err := r.net.Listen("local:80")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for first := true; ; first = false {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			if first {
				time.AfterFunc(time.Second, func() { _, _ = io.WriteString(conn, forged) })
			}
		}
	}()
	c := serving(t, r, agent.ForwardHTTPWith("http://local:80", agent.HTTPOptions{DialContext: r.net.DialContext}))
	for range 2 { // a minute apart
		if got, _ := exchanged(t, c, get); !strings.HasSuffix(got, "ok") {
			t.Errorf("the client got %q", got)
		}
	}
}
