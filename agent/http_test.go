package agent_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
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

// Path and query reach the service to the letter.
func TestForwardHTTP_RequestTarget(t *testing.T) {
	for _, tt := range []struct{ target, request, want string }{
		{"http://local:80", "/", "/"},
		{"http://local:80", "/a%2Fb?c=%20&d", "/a%2Fb?c=%20&d"},
		{"http://local:80", "/a?", "/a?"},
		{"http://local:80", "/a;b?x;y=1&&=", "/a;b?x;y=1&&="},
		{"http://local:80", "/a/./b/../c//d", "/a/./b/../c//d"},
		{"http://local:80", "/%7e~|\"^{}`é", "/%7e~|\"^{}`é"},
		{"http://local:80", "/@evil/", "/@evil/"},
		{"http://local:80", "//evil:80/x?y", "//evil:80/x?y"},
		{"http://local:80", "///x", "///x"},
		{"http://local:80", "//a%2fb|c", "//a%2fb%7Cc"}, // the one byte that net/http cannot send here
		{"http://local:80", "/http://evil/x", "/http://evil/x"},
		{"http://local:80", "http://evil/x?y", "/x?y"},
		{"http://local:80", "http://evil?y", "/?y"},
		{"http://local:80", "http://evil", "/"},
		{"http://local:80/", "/x", "/x"},
		{"http://local:80/base/", "/x", "/base/x"},
		{"http://local:80/base", "/", "/base/"},
		{"http://local:80/b%2Fse", "/x%2F", "/b%2Fse/x%2F"},
		{"http://local:80/base", "//evil", "/base//evil"},
		{"http://local:80/base", "/...", "/base/..."},
		{"http://local:80/base", "/a..b", "/base/a..b"},
		{"http://local:80/base", "/..", "400"},
		{"http://local:80/base", "/x/../../etc", "400"},
		{"http://local:80/base", "/x/%2e%2E/y", "400"},
		{"http://local:80/base", "/x%2f..%2fy", "400"},
		{"http://local:80/base", "/x\\..\\y", "400"},
		{"http://local:80/base", "/x%5c..%5cy", "400"},
		{"http://local:80/base", "/..;a/x", "400"},
		{"http://local:80/base", "http://local:80/../x", "400"},
	} {
		t.Run(tt.target+" "+tt.request, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := forward(t, tt.target, func(w http.ResponseWriter, r *http.Request) {
					io.WriteString(w, r.RequestURI)
				})
				res, got := raw(t, c, "GET "+tt.request+" HTTP/1.1\r\nHost: x\r\n\r\n")
				if res.StatusCode != 200 {
					got = fmt.Sprint(res.StatusCode)
				}
				if got != tt.want {
					t.Errorf("the service was asked for %q, want %q", got, tt.want)
				}
			})
		})
	}
}

func TestForwardHTTP_OptionsAsterisk(t *testing.T) { synctest.Test(t, testForwardHTTPOptionsAsterisk) }
func testForwardHTTPOptionsAsterisk(t *testing.T) {
	c := forward(t, "http://local:80", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.RequestURI) })
	if res, _ := raw(t, c, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"); res.StatusCode != 200 {
		t.Errorf("OPTIONS *: %d", res.StatusCode)
	}
}

func TestForwardHTTP_RequestHeaders(t *testing.T) { synctest.Test(t, testForwardHTTPRequestHeaders) }
func testForwardHTTPRequestHeaders(t *testing.T) {
	got := make(chan *http.Request, 1)
	c := forward(t, "http://local:80", func(w http.ResponseWriter, r *http.Request) { got <- r })
	_, _ = raw(t, c, "GET / HTTP/1.1\r\nHost: client.example\r\n"+
		"Cookie: a=1\r\nX-Multi: 1\r\nX-Multi: 2\r\nX-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Host: h\r\nX-Forwarded-Proto: https\r\nForwarded: for=1.2.3.4\r\n"+
		"Te: trailers\r\nConnection: X-Hop\r\nX-Hop: 1\r\nAccept-Encoding: br\r\nAuthorization: Basic x\r\n\r\n")
	r := <-got
	if r.Host != "local:80" {
		t.Errorf("Host is %q, want that of the target", r.Host)
	}
	want := http.Header{
		"Cookie": {"a=1"}, "X-Multi": {"1", "2"}, "X-Forwarded-For": {"1.2.3.4"}, "X-Forwarded-Host": {"h"}, "X-Forwarded-Proto": {"https"},
		"Forwarded": {"for=1.2.3.4"}, "Te": {"trailers"}, "Accept-Encoding": {"br"}, "Authorization": {"Basic x"},
	}
	if fmt.Sprint(r.Header) != fmt.Sprint(want) {
		t.Errorf("the service got\n%v, want\n%v", r.Header, want)
	}
}

// Nothing is added to an answer: no guessed type, no date.
func TestForwardHTTP_ResponseHeaders(t *testing.T) {
	synctest.Test(t, testForwardHTTPResponseHeaders)
}
func testForwardHTTPResponseHeaders(t *testing.T) {
	r := newFakeRelay(t)
	answers := []string{
		"HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 6\r\n\r\n<html>",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nDate: yesterday\r\nContent-Type: x/y\r\n\r\n2\r\nab\r\n0\r\n\r\n",
		"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nDialback-Error: forged\r\n\r\nno",
		"HTTP/1.1 304 Not Modified\r\nEtag: x\r\n\r\n",
		"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n",
		"HTTP/1.0 299 Odd\r\nX: y\r\n\r\nuntil the end",
	}
	ln, err := r.net.Listen("local:80")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for _, a := range answers {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			_, _ = io.WriteString(conn, a)
			conn.Close()
		}
	}()
	c := serving(t, r, agent.ForwardHTTPWith("http://local:80", agent.HTTPOptions{DialContext: r.net.DialContext}))
	client := httpClient(c)
	for i, want := range []string{
		`200 map[Content-Length:[6] Set-Cookie:[a=1 b=2]] "<html>" []`,
		`200 map[Content-Type:[x/y] Date:[yesterday]] "ab" []`,
		`404 map[Content-Length:[2]] "no" [103 map[Link:[</x>]]]`,
		`304 map[Etag:[x]] "" []`,
		`204 map[X:[y]] "" []`,
		`299 map[X:[y]] "until the end" []`,
	} {
		var hints []string
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			hints = append(hints, fmt.Sprint(code, " ", map[string][]string(h)))
			return nil
		}})
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://any/", nil)
		res, err := client.Do(req)
		b := body(t, res, err)
		if got := fmt.Sprintf("%d %v %q %v", res.StatusCode, res.Header, b, hints); got != want {
			t.Errorf("answer %d is\n%s, want\n%s", i, got, want)
		}
	}
}

func TestForwardHTTP_Head(t *testing.T) { synctest.Test(t, testForwardHTTPHead) }
func testForwardHTTPHead(t *testing.T) {
	c := forward(t, "http://local:80", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "12345")
	})
	res, err := httpClient(c).Head("http://any/")
	if b := body(t, res, err); b != "" || res.ContentLength != 12345 {
		t.Errorf("HEAD: %q, Content-Length %d", b, res.ContentLength)
	}
}

func TestForwardHTTP_Trailers(t *testing.T) { synctest.Test(t, testForwardHTTPTrailers) }
func testForwardHTTPTrailers(t *testing.T) {
	got := make(chan http.Header, 1)
	c := forward(t, "http://local:80", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got <- r.Trailer
		w.Header().Set("Trailer", "X-Declared")
		io.WriteString(w, "body")
		w.Header().Set("X-Declared", "1")
		w.Header().Set(http.TrailerPrefix+"X-Undeclared", "2")
	})
	conn, _ := dialStream(c)(t.Context(), "", "")
	defer conn.Close()
	io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n1\r\na\r\n0\r\nX-Sum: 3\r\nX-Late: 4\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if b := body(t, res, err); b != "body" || res.Trailer.Get("X-Declared") != "1" || res.Trailer.Get("X-Undeclared") != "2" {
		t.Errorf("answer %q with trailers %v", b, res.Trailer)
	}
	if h := <-got; h.Get("X-Sum") != "3" || h.Get("X-Late") != "4" {
		t.Errorf("the service got trailers %v", h)
	}
	io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Only: 5\r\n\r\n")
	if h := <-got; h.Get("X-Only") != "5" {
		t.Errorf("the service got trailers %v, want one that was not announced", h)
	}
}

func TestForwardHTTP_Uploads(t *testing.T) { synctest.Test(t, testForwardHTTPUploads) }
func testForwardHTTPUploads(t *testing.T) {
	c := forward(t, "http://local:80", func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		n, err := io.Copy(h, r.Body)
		fmt.Fprintf(w, "%d %x %v", n, h.Sum(nil), err)
	})
	client := httpClient(c)
	for _, n := range []int{0, 1, 65535, 65536, 65537, 5 << 20} {
		p := make([]byte, n)
		_, _ = rand.Read(p)
		want := fmt.Sprintf("%d %x <nil>", n, sha256.Sum256(p))
		for _, chunked := range []bool{false, true} {
			for _, expect := range []bool{false, true} {
				var b io.Reader = bytes.NewReader(p)
				if chunked {
					b = struct{ io.Reader }{b}
				}
				req, _ := http.NewRequest("POST", "http://any/", b)
				if expect {
					req.Header.Set("Expect", "100-continue")
				}
				began := time.Now()
				res, err := client.Do(req)
				if got := body(t, res, err); got != want {
					t.Errorf("upload of %d bytes, chunked %v, expect %v: %q", n, chunked, expect, got)
				}
				if d := time.Since(began); d > 0 {
					t.Errorf("upload of %d bytes, chunked %v, expect %v took %v: somebody waited for a timer", n, chunked, expect, d)
				}
			}
		}
	}
}

// A client that asks first is answered by the service, and keeps its body.
func TestForwardHTTP_ExpectRefused(t *testing.T) { synctest.Test(t, testForwardHTTPExpectRefused) }
func testForwardHTTPExpectRefused(t *testing.T) {
	c := forward(t, "http://local:80", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(417) })
	res, _ := raw(t, c, "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n")
	if res.StatusCode != 417 {
		t.Errorf("answer %d, want the service's 417 without a 100", res.StatusCode)
	}
}

// The service answers before it has read the request, and both go on.
func TestForwardHTTP_FullDuplex(t *testing.T) { synctest.Test(t, testForwardHTTPFullDuplex) }
func testForwardHTTPFullDuplex(t *testing.T) {
	c := forward(t, "http://local:80", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		buf := make([]byte, 100)
		for {
			n, err := r.Body.Read(buf)
			if err != nil {
				return
			}
			_, _ = w.Write(buf[:n])
			_ = http.NewResponseController(w).Flush()
		}
	})
	pr, pw := io.Pipe()
	req, _ := http.NewRequest("POST", "http://any/", pr)
	res, err := httpClient(c).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for i := range 5 {
		fmt.Fprintf(pw, "%d", i)
		buf := make([]byte, 1)
		if _, err := io.ReadFull(res.Body, buf); err != nil || string(buf) != fmt.Sprint(i) {
			t.Fatalf("echo %d: %q, %v", i, buf, err)
		}
	}
	pw.Close()
	if rest, err := io.ReadAll(res.Body); len(rest) > 0 || err != nil {
		t.Errorf("then %q, %v", rest, err)
	}
}

// Events arrive when they are sent, whatever the content type says.
func TestForwardHTTP_StreamsAnswers(t *testing.T) { synctest.Test(t, testForwardHTTPStreamsAnswers) }
func testForwardHTTPStreamsAnswers(t *testing.T) {
	for _, contentType := range []string{"text/event-stream; charset=utf-8", "text/plain", ""} {
		c := forward2(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Type"] = []string{contentType}
			w.Header().Set("Content-Length", "5")
			for i := range 5 {
				time.Sleep(time.Second)
				fmt.Fprint(w, i)
				_ = http.NewResponseController(w).Flush()
			}
		})
		res, err := c.Get("http://any/")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for i := range 5 {
			buf := make([]byte, 2)
			n, err := res.Body.Read(buf)
			if string(buf[:n]) != fmt.Sprint(i) || err != nil && err != io.EOF {
				t.Fatalf("event %d: %q, %v", i, buf[:n], err)
			}
			if d := time.Since(began); d != time.Duration(i)*time.Second {
				t.Errorf("event %d of %q after %v", i, contentType, d)
			}
		}
		res.Body.Close()
	}
}

// forward2 is forward for tests that need more than one.
func forward2(t *testing.T, h http.HandlerFunc) *http.Client {
	return httpClient(forward(t, "http://local:80", h))
}

// When the client leaves, so does its request.
func TestForwardHTTP_ClientLeaves(t *testing.T) { synctest.Test(t, testForwardHTTPClientLeaves) }
func testForwardHTTPClientLeaves(t *testing.T) {
	gone := make(chan time.Time, 1)
	c := forward(t, "http://local:80", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		gone <- time.Now()
	})
	for _, leave := range []string{"mid-answer", "before the answer"} {
		ctx, cancel := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://any/", nil)
		res, err := httpClient(c).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		left := time.Now()
		cancel()
		if d := (<-gone).Sub(left); d > time.Second {
			t.Errorf("%s: the service's request ended %v after the client left", leave, d)
		}
		res.Body.Close()
	}
}

// A client that aborts an upload must not make the service believe that it has
// all of it.
func TestForwardHTTP_AbortedUpload(t *testing.T) { synctest.Test(t, testForwardHTTPAbortedUpload) }
func testForwardHTTPAbortedUpload(t *testing.T) {
	got := make(chan error, 1)
	c := forward(t, "http://local:80", func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		got <- err
	})
	conn, _ := dialStream(c)(t.Context(), "", "")
	io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
	conn.Close()
	if err := <-got; err == nil {
		t.Error("the service took a truncated upload for a whole one")
	}
}

// A service that stops reading an upload does not hide that the client left.
func TestForwardHTTP_ClientLeavesStalledUpload(t *testing.T) {
	synctest.Test(t, testForwardHTTPClientLeavesStalledUpload)
}
func testForwardHTTPClientLeavesStalledUpload(t *testing.T) {
	gone := make(chan time.Time, 1)
	c := forward(t, "http://local:80", func(w http.ResponseWriter, r *http.Request) {
		conn, _, _ := http.NewResponseController(w).Hijack()
		defer conn.Close()
		// It reads nothing, so only a write tells whether anybody is there.
		for range 1000 {
			time.Sleep(time.Second)
			if _, err := io.WriteString(conn, " "); err != nil {
				gone <- time.Now()
				return
			}
		}
	})
	conn, _ := dialStream(c)(t.Context(), "", "")
	_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n")
	go func() { _, _ = conn.Write(make([]byte, 10000000)) }()
	time.Sleep(10 * time.Minute)
	conn.(*transport.StreamConn).Conn().CloseNow()
	left := time.Now()
	if d := receive(t, gone, "the end of the service's request").Sub(left); d > 35*time.Second {
		t.Errorf("the service's connection ended %v after the client left", d)
	}
}

// An answer that breaks off must never look whole.
func TestForwardHTTP_BrokenAnswer(t *testing.T) { synctest.Test(t, testForwardHTTPBrokenAnswer) }
func testForwardHTTPBrokenAnswer(t *testing.T) {
	c := forward(t, "http://local:80", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/known" {
			w.Header().Set("Content-Length", "100")
		}
		io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		time.Sleep(time.Second) // else the half may be dropped with what is unsent
		panic(http.ErrAbortHandler)
	})
	for _, path := range []string{"/known", "/chunked"} {
		conn, _ := dialStream(c)(t.Context(), "", "")
		io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
		br := bufio.NewReader(conn)
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := io.ReadAll(res.Body)
		var ce *transport.CloseError
		if string(p) != "half" || err == nil || !errors.As(err, &ce) || ce.Code != transport.CloseInternal || ce.Reason != "answer broken off" {
			t.Errorf("%s: %q, %v; want half, and an end that says so", path, p, err)
		}
		conn.Close()
	}
}

func TestForwardHTTP_ServiceDown(t *testing.T) {
	for _, tt := range []struct {
		name, method, message string
		status                int
		local                 func(net.Conn) // nil: nobody listens
	}{
		{"refused", "GET", "service down: connection refused", 502, nil},
		{"refused POST", "POST", "service down: connection refused", 502, nil},
		{"closes without an answer", "POST", "the service closed the connection before it answered", 502, func(c net.Conn) { c.Close() }},
		{"no HTTP", "GET", "the service closed the connection before it answered", 502, func(c net.Conn) {
			_, _ = io.WriteString(c, "SSH-2.0-x\r\n\r\n")
			c.Close()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFakeRelay(t)
				if tt.local != nil {
					ln, err := r.net.Listen("local:80")
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { ln.Close() })
					go func() {
						for {
							conn, err := ln.Accept()
							if err != nil {
								return
							}
							tt.local(conn)
						}
					}()
				}
				c := serving(t, r, agent.ForwardHTTPWith("http://local:80", agent.HTTPOptions{DialContext: r.net.DialContext}))
				req, _ := http.NewRequest(tt.method, "http://any/", strings.NewReader("x"))
				res, err := httpClient(c).Do(req)
				b := body(t, res, err)
				var got struct {
					Error struct{ Code, Message string }
				}
				if err := json.Unmarshal([]byte(b), &got); err != nil {
					t.Errorf("%q: %v", b, err)
				}
				if res.StatusCode != tt.status || res.Header.Get("Dialback-Error") != "service_down" || got.Error.Code != "service_down" || got.Error.Message != tt.message {
					t.Errorf("%d %v %s", res.StatusCode, res.Header, b)
				}
			})
		})
	}
}

// A stream stays usable when a service is down, and the relay alone closes an
// idle one.
func TestForwardHTTP_IdleStreamIsKept(t *testing.T) {
	synctest.Test(t, testForwardHTTPIdleStreamIsKept)
}
func testForwardHTTPIdleStreamIsKept(t *testing.T) {
	r := newFakeRelay(t)
	c := serving(t, r, agent.ForwardHTTPWith("http://local:80", agent.HTTPOptions{DialContext: r.net.DialContext}))
	conn, _ := dialStream(c)(t.Context(), "", "")
	br := bufio.NewReader(conn)
	for range 3 {
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		res, err := http.ReadResponse(br, nil)
		if _ = body(t, res, err); res.StatusCode != 502 {
			t.Errorf("answer %d", res.StatusCode)
		}
		time.Sleep(24 * time.Hour)
	}
	conn.Close()
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
