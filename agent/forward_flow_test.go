package agent_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
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
	"github.com/dialback/dialback/transport"
)

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

// Events arrive when they are sent, or 5 ms later, whatever the content type
// says.
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
			// 5 ms is what an answer of known length may wait for more.
			if late := time.Since(began) - time.Duration(i)*time.Second; late.Abs() > 5*time.Millisecond {
				t.Errorf("event %d of %q came %v late", i, contentType, late)
			}
		}
		res.Body.Close()
	}
}

// forward2 is forward for tests that need more than one.
func forward2(t *testing.T, h http.HandlerFunc) *http.Client {
	return httpClient(forward(t, "http://local:80", h))
}

// What has come of a chunked body, be it none, is passed on although its
// trailers have only begun.
func TestForwardHTTP_TrailersHoldNothingBack(t *testing.T) {
	const h = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: T\r\n\r\n"
	for _, tt := range []struct{ name, data, want string }{
		{"data", "4\r\ndata\r\n", "0004\r\ndata\r\n"},
		{"no data", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFakeRelay(t)
				r.local(func(conn net.Conn) {
					defer conn.Close()
					_, _ = http.ReadRequest(bufio.NewReader(conn))
					_, _ = io.WriteString(conn, h+tt.data+"0\r\nT: ")
					time.Sleep(time.Minute)
					_, _ = io.WriteString(conn, "x\r\n\r\n")
				})
				s := bareStream(serving(t, r, agent.ForwardHTTPWith("http://local:80", agent.HTTPOptions{DialContext: r.net.DialContext})), "t")
				began := time.Now()
				s.write(get)
				for got := ""; got != h+tt.want; {
					m, err := s.message()
					if got += m; err != nil || !strings.HasPrefix(h+tt.want, got) {
						t.Fatalf("the client got %q, %v; want %q", got, err, h+tt.want)
					}
				}
				if d := time.Since(began); d > 5*time.Millisecond {
					t.Errorf("it came after %v", d)
				}
				s.wantMessage("0\r\nT: x\r\n\r\n")
				s.Close(transport.CloseNormal, "")
			})
		})
	}
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
	if d := receive(t, gone, "the end of the service's request").Sub(left); d > 5*time.Minute+35*time.Second {
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
