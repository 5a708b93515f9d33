package agent_test

import (
	"bufio"
	"context"
	"errors"
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

// dialThatHangs dials until its context ends, and tells when.
func dialThatHangs(ended chan<- time.Time) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		ended <- time.Now()
		return nil, ctx.Err()
	}
}

func dialThatPanics(context.Context, string, string) (net.Conn, error) { panic("oops") }

// An answer that comes before the end of the request's body is passed on at
// once. The rest of the body is dropped, and the stream serves the next request.
func TestForwardHTTP_EarlyAnswer(t *testing.T) {
	for _, tt := range []struct{ name, answer, want string }{
		{"refused", "HTTP/1.1 413 x\r\nContent-Length: 3\r\n\r\nbig", "HTTP/1.1 413 x\r\nContent-Length: 3\r\n\r\nbig"},
		{"refused, and reads on", "HTTP/1.1 413 x\r\nContent-Length: 3\r\n\r\nbigOPEN", "HTTP/1.1 413 x\r\nContent-Length: 3\r\n\r\nbig"},
		{"closed", "", "HTTP/1.1 502 Bad Gateway\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFakeRelay(t)
				r.local(func(conn net.Conn) {
					br := bufio.NewReader(conn)
					req, _ := http.ReadRequest(br)
					if req.Method == http.MethodGet {
						_, _ = io.WriteString(conn, "HTTP/1.1 204 x\r\n\r\nOPEN")
						return
					}
					answer := strings.TrimSuffix(tt.answer, "OPEN")
					_, _ = io.WriteString(conn, answer)
					if answer != tt.answer {
						t.Cleanup(func() { conn.Close() })
					} else {
						conn.Close()
					}
				})
				c := serving(t, r, agent.ForwardHTTPWith("http://local:80", agent.HTTPOptions{DialContext: r.net.DialContext}))
				s := bareStream(c, "t")
				s.write("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 500000\r\n\r\n")
				got, err := s.message()
				if !strings.HasPrefix(got, tt.want) || err != nil {
					t.Fatalf("the client got %q, %v, want %q", got, err, tt.want)
				}
				for range 50 {
					s.write(strings.Repeat("x", 10_000))
				}
				s.write(get)
				if got, err := s.message(); got != "HTTP/1.1 204 x\r\n\r\n" || err != nil {
					t.Errorf("the next request on the stream got %q, %v", got, err)
				}
				s.Close(transport.CloseNormal, "")
			})
		})
	}
}

// The relay ends a stream whose body it does not want to send to its end.
func TestForwardHTTP_EarlyAnswerThenClose(t *testing.T) {
	synctest.Test(t, testForwardHTTPEarlyAnswerThenClose)
}
func testForwardHTTPEarlyAnswerThenClose(t *testing.T) {
	r := newFakeRelay(t)
	c := serving(t, r, agent.ForwardHTTPWith("http://local:80", agent.HTTPOptions{DialContext: refusing(t, r).dial}))
	s := bareStream(c, "t")
	s.write("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\na")
	s.wantMessage("HTTP/1.1 413 x\r\nContent-Length: 0\r\n\r\n")
	time.Sleep(time.Minute)
	s.Close(transport.CloseNormal, "")
	_, err := s.message()
	var ended *transport.CloseError
	if !errors.As(err, &ended) || ended.Code != transport.CloseNormal {
		t.Errorf("the stream ended with %v", err)
	}
	<-s.Done()
}

// refusing is a service that answers 413 to the head of a request.
func refusing(t *testing.T, r *fakeRelay) *countingDialer {
	t.Helper()
	r.local(func(conn net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReader(conn))
		_, _ = io.WriteString(conn, "HTTP/1.1 413 x\r\nContent-Length: 0\r\n\r\n")
		go func() {
			defer conn.Close()
			_, _ = io.Copy(io.Discard, conn)
		}()
	})
	return &countingDialer{net: &r.net}
}

// A client that waits for a 100 that never comes sends no body: what follows
// the answer cannot be known, so the stream ends with it.
func TestForwardHTTP_ExpectUnanswered(t *testing.T) {
	for _, tt := range []struct {
		name, head, body, answer, want string
		end                            bool
	}{
		{"refused", "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n", "",
			"HTTP/1.1 417 x\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 417 x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", true},
		{"no answer", "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n", "",
			"", "HTTP/1.1 502 Bad Gateway\r\n", true},
		{"sent all the same", "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n", "abc",
			"HTTP/1.1 204 x\r\n\r\n", "HTTP/1.1 204 x\r\n\r\n", false},
		{"no body", "GET / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n", "",
			"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 x\r\n\r\n", "HTTP/1.1 204 x\r\n\r\n", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFakeRelay(t)
				ln, err := r.net.Listen("local:80")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { ln.Close() })
				go func() {
					conn, err := ln.Accept()
					if err != nil {
						return
					}
					defer conn.Close()
					p := make([]byte, 1000)
					for n := 0; !strings.HasSuffix(string(p[:n]), tt.body) || n == 0; {
						k, err := conn.Read(p[n:])
						if err != nil {
							return
						}
						n += k
					}
					_, _ = io.WriteString(conn, tt.answer)
					if tt.answer != "" {
						_, _ = io.Copy(io.Discard, conn)
					}
				}()
				c := serving(t, r, agent.ForwardHTTPWith("http://local:80", agent.HTTPOptions{DialContext: r.net.DialContext}))
				s := bareStream(c, "t")
				s.write(tt.head + tt.body)
				if got, err := s.message(); !strings.HasPrefix(got, tt.want) || err != nil {
					t.Errorf("the client got %q, %v, want %q", got, err, tt.want)
				}
				if tt.end {
					s.wantEnd(transport.CloseNormal, "")
				} else {
					s.Close(transport.CloseNormal, "")
				}
			})
		})
	}
}

// An upgrade whose request has a body gets its bytes behind that.
func TestUpgrade_WithBody(t *testing.T) { synctest.Test(t, testUpgradeWithBody) }
func testUpgradeWithBody(t *testing.T) {
	c := forward(t, "http://local:80", func(w http.ResponseWriter, r *http.Request) {
		p, _ := io.ReadAll(r.Body)
		conn, brw, _ := http.NewResponseController(w).Hijack()
		defer conn.Close()
		_, _ = io.WriteString(conn, switching+string(p)+";")
		_, _ = io.Copy(conn, brw)
	})
	conn, _ := dialStream(c)(t.Context(), "", "")
	_, _ = io.WriteString(conn, strings.TrimSuffix(upgradeRequest, "\r\n")+"Transfer-Encoding: chunked\r\n\r\n")
	_, _ = io.WriteString(conn, "4\r\nbody\r\n0\r\n\r\nearly")
	_ = conn.(*transport.StreamConn).CloseWrite()
	br := bufio.NewReader(conn)
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != 101 {
		t.Fatalf("%v, %v", res, err)
	}
	if rest, err := io.ReadAll(br); string(rest) != "body;early" || err != nil {
		t.Errorf("after the 101: %q, %v", rest, err)
	}
	_ = conn.Close()
}

// An upgrade that takes its time is not cut off from what was read ahead.
func TestUpgrade_Slow(t *testing.T) { synctest.Test(t, testUpgradeSlow) }
func testUpgradeSlow(t *testing.T) {
	c := forward(t, "http://local:80", func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(time.Second)
		conn, brw, _ := http.NewResponseController(w).Hijack()
		defer conn.Close()
		_, _ = io.WriteString(conn, switching)
		_, _ = io.Copy(conn, brw)
	})
	conn, _ := dialStream(c)(t.Context(), "", "")
	_, _ = io.WriteString(conn, upgradeRequest)
	time.Sleep(100 * time.Millisecond)
	_, _ = io.WriteString(conn, "early ")
	time.Sleep(time.Minute)
	_, _ = io.WriteString(conn, "late")
	_ = conn.(*transport.StreamConn).CloseWrite()
	br := bufio.NewReader(conn)
	if _, err := http.ReadResponse(br, nil); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(br); string(rest) != "early late" || err != nil {
		t.Errorf("after the 101: %q, %v", rest, err)
	}
	_ = conn.Close()
}
