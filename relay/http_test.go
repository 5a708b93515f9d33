package relay_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/internal/memnet"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/relaytest"
	"github.com/dialback/dialback/transport"
)

// handler is an HTTP service that answers in the agent's process.
func handler(f func(w http.ResponseWriter, r *http.Request)) map[string]agent.Handler {
	return map[string]agent.Handler{"": agent.HTTP(http.HandlerFunc(f))}
}

// Path and query arrive to the letter: nothing is cleaned, decoded or encoded, be
// there bytes in it that belong escaped or not.
func TestHTTP_PathAndQueryToTheLetter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.RequestURI) }), nil)
		for _, uri := range []string{"/", "/a/b", "/a//b", "//a", "/a/../b", "/./", "/%2e%2e/x", "/a%2Fb", "/x?", "/x?a=b&&c=%20+;", "/x?q=%zz", "/~u/:x@y;z=1,2",
			"/a|b", "/a%2Fb|c", "/..%2F..%2Fetc|x", "/a%2Fb/\xc3\xa9", "/a%2Fb/\xe9\xff?\xff", "/a%2Fb{c}", "/%41|", "/a%2Fb^c", `/%2F\"`} {
			want := uri
			if uri == "/x?" {
				want = "/x" // an empty query is none
			}
			resp := rawGet(t, s, "/hosts/h"+uri)
			if resp != want {
				t.Errorf("the service saw %q, want %q", resp, want)
			}
		}
	})
}

// rawGet sends a request line as it is.
func rawGet(t *testing.T, s *relaytest.Server, uri string) string {
	t.Helper()
	_, body := rawRequest(t, s, "GET "+uri+" HTTP/1.1\r\nHost: relay.test\r\nConnection: close\r\n\r\n")
	return body
}

// rawRequest sends a request as it is and reads its answer.
func rawRequest(t *testing.T, s *relaytest.Server, request string) (*http.Response, string) {
	t.Helper()
	c, err := s.Transport().DialContext(context.Background(), "tcp", "relay.test:80")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, request)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	return resp, string(b)
}

// Headers: repeated ones stay repeated, hop-by-hop ones end here, the relay's
// X-Forwarded-* replace the client's, and the identity's headers win.
func TestHTTP_Headers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var got http.Header
		s := server(t, func(c *relay.Config) {
			c.PrivateCookies = []string{"session"}
			c.AuthorizeClient = func(context.Context, *http.Request, string) (relay.Identity, error) {
				return relay.Identity{Headers: http.Header{"X-User": {"alice"}}}, nil
			}
		})
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
			got = r.Header
			w.Header()["X-Many"] = []string{"1", "2"}
			w.Header().Set("Strict-Transport-Security", "max-age=1")
			w.Header().Set("Service-Worker-Allowed", "/")
			w.Header().Set("Clear-Site-Data", `"*"`)
			http.SetCookie(w, &http.Cookie{Name: "a", Value: "1"})
			http.SetCookie(w, &http.Cookie{Name: "b", Value: "2"})
		}), nil)
		req, _ := http.NewRequest("GET", s.URL+"/hosts/h/x", nil)
		req.Header = http.Header{
			"X-Two": {"1", "2"}, "Connection": {"X-Hop"}, "X-Hop": {"1"}, "X-User": {"mallory"},
			"X-Forwarded-For": {"6.6.6.6"}, "Forwarded": {"for=6.6.6.6"}, "X-Forwarded-Proto": {"https"},
			"Cookie": {"a=1; session=secret; b=2"},
		}
		resp, _, err := s.DoRequest(req)
		if err != nil {
			t.Fatal(err)
		}
		if v := got["X-Two"]; len(v) != 2 {
			t.Errorf("a repeated header: %q", v)
		}
		if got.Get("X-Hop") != "" || got.Get("Forwarded") != "" {
			t.Errorf("hop-by-hop or forged headers reached the host: %v", got)
		}
		if v := got["X-User"]; len(v) != 1 || v[0] != "alice" {
			t.Errorf("the identity's header: %q, want alice alone", v)
		}
		if v := got.Get("X-Forwarded-For"); strings.Contains(v, "6.6.6.6") {
			t.Errorf("X-Forwarded-For: %q", v)
		}
		if got.Get("X-Forwarded-Proto") != "http" || got.Get("X-Forwarded-Host") != "relay.test:80" || got.Get("X-Forwarded-Prefix") != "/hosts/h" {
			t.Errorf("X-Forwarded-*: %v", got)
		}
		if v := got.Get("Cookie"); v != "a=1; b=2" {
			t.Errorf("cookies: %q, want the private one cut", v)
		}
		if len(resp.Header["X-Many"]) != 2 || len(resp.Header["Set-Cookie"]) != 2 {
			t.Errorf("repeated answer headers: %v", resp.Header)
		}
		for _, k := range []string{"Strict-Transport-Security", "Service-Worker-Allowed", "Clear-Site-Data"} {
			if resp.Header.Get(k) != "" {
				t.Errorf("a host set %s for the whole origin", k)
			}
		}
	})
}

func TestHTTP_TrustForwardedAddsToTheList(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, func(c *relay.Config) { c.TrustForwarded = true })
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.Header.Get("X-Forwarded-For"), "|", r.Header.Get("X-Forwarded-Proto"))
		}), nil)
		req, _ := http.NewRequest("GET", s.URL+"/hosts/h/x", nil)
		req.Header = http.Header{"X-Forwarded-For": {"6.6.6.6"}, "X-Forwarded-Proto": {"https"}}
		_, body, _ := s.DoRequest(req)
		if !strings.HasPrefix(body, "6.6.6.6") || !strings.HasSuffix(body, "|https") {
			t.Errorf("the service saw %q", body)
		}
	})
}

// Trailers, declared and not, HEAD, 204 and 304 (fault 26).
func TestHTTP_TrailersAndBodylessAnswers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/declared":
				w.Header().Set("Trailer", "X-Sum")
				io.WriteString(w, "body")
				w.Header().Set("X-Sum", "42")
			case "/undeclared":
				io.WriteString(w, "body")
				w.(http.Flusher).Flush()
				w.Header().Set(http.TrailerPrefix+"X-Sum", "42")
			case "/204":
				w.WriteHeader(204)
			case "/304":
				w.Header().Set("Etag", `"x"`)
				w.WriteHeader(304)
			case "/head":
				w.Header().Set("Content-Length", "7")
				w.Header().Set("Content-Type", "text/x")
			}
		}), nil)
		for _, p := range []string{"/declared", "/undeclared"} {
			resp, body, err := s.Do("GET", "/hosts/h"+p, nil)
			if err != nil || body != "body" || resp.Trailer.Get("X-Sum") != "42" {
				t.Errorf("%s: %q, trailer %v, %v", p, body, resp.Trailer, err)
			}
		}
		for p, status := range map[string]int{"/204": 204, "/304": 304} {
			if r := get(s, "/hosts/h"+p); r.err != nil || r.status != status || r.body != "" {
				t.Errorf("%s: %+v", p, r)
			}
		}
		resp, body, err := s.Do("HEAD", "/hosts/h/head", nil)
		if err != nil || resp.StatusCode != 200 || resp.ContentLength != 7 || body != "" {
			t.Errorf("HEAD: %v, length %d, %q, %v", resp.StatusCode, resp.ContentLength, body, err)
		}
		settled(t, s, "after bodyless answers")
	})
}

// Server-sent events come one by one, whatever the content type says (fault 25).
func TestHTTP_EventsAreNotHeldBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
			for i := range 5 {
				fmt.Fprintf(w, "data: %d\n\n", i)
				w.(http.Flusher).Flush()
				time.Sleep(time.Second)
			}
		}), nil)
		tr := s.Transport()
		defer tr.CloseIdleConnections()
		resp, err := (&http.Client{Transport: tr}).Get(s.URL + "/hosts/h/sse")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		start, buf := time.Now(), make([]byte, 100)
		for i := range 5 {
			n, err := resp.Body.Read(buf)
			if string(buf[:n]) != fmt.Sprintf("data: %d\n\n", i) || time.Since(start) != time.Duration(i)*time.Second {
				t.Fatalf("event %d: %q after %v, %v", i, buf[:n], time.Since(start), err)
			}
		}
	})
}

// Wherever an answer stops for a while, its client has the header, and all chunks
// that are whole, unless it stops within another one (PROTOCOL.md, section 9).
func TestHTTP_NothingIsHeldBackAnywhere(t *testing.T) {
	const (
		head   = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
		first  = head + "5\r\nhello"
		within = first + "\r\n5\r\n"
		second = within + "world"
		last   = second + "\r\n0\r\n"
		answer = last + "\r\n"
	)
	for at := len(head); at < len(answer); at++ {
		bubble(t, func(t *testing.T) {
			s := server(t, nil)
			goOn := make(chan struct{})
			s.MustConnect("h", relaytest.HostConfig{Proto: 3, OnDial: func(h *relaytest.Host, d transport.StreamDial) {
				c, err := h.Open(d)
				if err != nil {
					return
				}
				if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					io.WriteString(c, answer[:at])
					<-goOn
					io.WriteString(c, answer[at:])
				}
			}})
			var status, got atomic.Int32
			ended := make(chan error, 1)
			tr := s.Transport()
			defer tr.CloseIdleConnections()
			go func() {
				resp, err := (&http.Client{Transport: tr}).Get(s.URL + "/hosts/h/x")
				if err != nil {
					ended <- err
					return
				}
				status.Store(int32(resp.StatusCode))
				defer resp.Body.Close()
				for buf := make([]byte, 64); err == nil; {
					var n int
					n, err = resp.Body.Read(buf)
					got.Add(int32(n))
				}
				ended <- err
			}()
			time.Sleep(time.Second)
			want := int32(0)
			switch {
			case at >= len(second) && at < len(last):
				want = 10
			case at >= len(first) && at < len(within):
				want = 5
			}
			if status.Load() != 200 || got.Load() < want {
				t.Errorf("after %q the client has status %d and %d bytes, want %d", answer[len(head):at], status.Load(), got.Load(), want)
			}
			close(goOn)
			if err := <-ended; err != io.EOF || got.Load() != 10 {
				t.Errorf("cut after %q: %v after %d bytes", answer[len(head):at], err, got.Load())
			}
		})
	}
}

// The client leaves: the host's request is cancelled within a second (fault 28).
func TestHTTP_ClientLeavesMidStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		ended := make(chan time.Time, 1)
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			ended <- time.Now()
		}), nil)
		tr := s.Transport()
		ctx, cancel := context.WithCancel(context.Background())
		req, _ := http.NewRequestWithContext(ctx, "GET", s.URL+"/hosts/h/x", nil)
		resp, err := (&http.Client{Transport: tr}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		left := time.Now()
		cancel()
		resp.Body.Close()
		if at := <-ended; at.Sub(left) > time.Second {
			t.Errorf("the host's request ended %v after the client had left", at.Sub(left))
		}
		settled(t, s, "after the client left")
	})
}

// Bodies of all sizes, with and without a length, with Expect (fault 27).
func TestHTTP_Uploads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }), nil)
		for _, n := range []int{0, 1, 32 << 10, 64<<10 - 1, 64 << 10, 64<<10 + 1, 3 << 20} {
			b := make([]byte, n)
			rand.Read(b)
			for _, chunked := range []bool{false, true} {
				var body io.Reader = bytes.NewReader(b)
				if chunked {
					body = struct{ io.Reader }{body}
				}
				req, _ := http.NewRequest("POST", s.URL+"/hosts/h/up", body)
				if n == 64<<10 {
					req.Header.Set("Expect", "100-continue")
				}
				resp, got, err := s.DoRequest(req)
				if err != nil || resp.StatusCode != 200 || got != string(b) {
					t.Fatalf("%d bytes, chunked %v: %v, %d bytes back, %v", n, chunked, resp, len(got), err)
				}
			}
		}
		settled(t, s, "after uploads")
	})
}

// An answer may come before the request has ended, and a client that never
// ends its upload does not hold anything.
func TestHTTP_EarlyAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(403)
			io.WriteString(w, "no")
		}), nil)
		pr, pw := io.Pipe()
		defer pw.Close()
		go pw.Write([]byte("a part"))
		req, _ := http.NewRequest("POST", s.URL+"/hosts/h/up", pr)
		resp, body, err := s.DoRequest(req)
		if err != nil || resp.StatusCode != 403 || body != "no" {
			t.Errorf("early answer: %v %q %v", resp, body, err)
		}
		settled(t, s, "after an early answer")
	})
}

// One connection carries many requests with bodies: nothing that an exchange
// does to its connection may hurt the next one.
func TestHTTP_ManyUploadsOnOneConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }), nil)
		s.MustConnect("v2", relaytest.HostConfig{OnDial: relaytest.AnswerHTTP(func(_ transport.HTTPRequest, b []byte) (int, string) { return 200, string(b) })})
		tr := s.Transport()
		defer tr.CloseIdleConnections()
		tr.MaxConnsPerHost = 1
		client := &http.Client{Transport: tr}
		for i := range 300 {
			host := []string{"h", "v2"}[i%2]
			resp, err := client.Post(s.URL+"/hosts/"+host+"/x", "text/plain", strings.NewReader("hello"))
			if err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
			b, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != 200 || string(b) != "hello" || err != nil {
				t.Fatalf("request %d: %d %.100q %v", i, resp.StatusCode, b, err)
			}
		}
	})
}

// What is left of a body that was not read is never taken for a request.
func TestHTTP_HalfReadBodyIsNoRequest(t *testing.T) {
	for name, hostID := range map[string]string{"an agent": "h", "an offline host": "nobody"} {
		for _, framing := range []string{"Content-Length: 1000", "Transfer-Encoding: chunked"} {
			bubble(t, func(t *testing.T) {
				var seen []string
				s := server(t, nil)
				s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
					seen = append(seen, r.URL.Path)
					w.WriteHeader(403)
				}), nil)
				c, err := s.Transport().DialContext(context.Background(), "tcp", "relay.test:80")
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				fmt.Fprintf(c, "POST /hosts/%s/first HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", hostID, framing)
				io.WriteString(c, map[bool]string{true: "3\r\nabc\r\n", false: "abc"}[strings.HasPrefix(framing, "T")])
				br := bufio.NewReader(c)
				if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode < 400 {
					t.Fatalf("%s, %s: %v %v", name, framing, resp, err)
				}
				fmt.Fprintf(c, "GET /hosts/h/smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
				time.Sleep(time.Minute)
				if strings.Contains(fmt.Sprint(seen), "smuggled") {
					t.Errorf("%s, %s: the rest of a body was served as a request: %v", name, framing, seen)
				}
			})
		}
	}
}

// Both directions at once: the answer begins while the request goes on.
func TestHTTP_FullDuplex(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			buf := make([]byte, 100)
			for {
				n, err := r.Body.Read(buf)
				w.Write(buf[:n])
				w.(http.Flusher).Flush()
				if err != nil {
					return
				}
			}
		}), nil)
		pr, pw := io.Pipe()
		tr := s.Transport()
		defer tr.CloseIdleConnections()
		req, _ := http.NewRequest("POST", s.URL+"/hosts/h/x", pr)
		resp, err := (&http.Client{Transport: tr}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 100)
		for i := range 5 {
			fmt.Fprintf(pw, "part %d", i)
			n, err := resp.Body.Read(buf)
			if string(buf[:n]) != fmt.Sprintf("part %d", i) {
				t.Fatalf("part %d: %q %v", i, buf[:n], err)
			}
		}
		pw.Close()
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		settled(t, s, "after both directions")
	})
}

// A host that breaks off an answer breaks it off for the client too: nobody
// takes a part for the whole.
func TestHTTP_TruncatedAnswerIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, strings.Repeat("x", 100_000))
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}), nil)
		if r := get(s, "/hosts/h/x"); r.err == nil {
			t.Errorf("a truncated answer looks complete: %d with %d bytes", r.status, len(r.body))
		}
		s.MustConnect("v2", relaytest.HostConfig{OnDial: func(h *relaytest.Host, d transport.StreamDial) {
			c, _ := h.DialBack(d)
			relaytest.ReadHTTPRequest(c)
			c.Write(transport.Text, transport.Encode(transport.HTTPResponse{Status: 200}))
			c.Write(transport.Binary, []byte("a part"))
			c.Close(transport.CloseNormal, "")
		}})
		if r := get(s, "/hosts/v2/x"); r.err == nil {
			t.Errorf("a v2 answer without http:end looks complete: %d %q", r.status, r.body)
		}
		settled(t, s, "after truncated answers")
	})
}

// An HTTP/1.0 client knows the end of an answer without a length only by the end
// of its connection: a part ends with a reset, also below TLS.
func TestHTTP_TruncatedAnswerToHTTP10(t *testing.T) {
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	theirs, ours := certified.TLS, clientTLS(certified)
	ours.ServerName = "example.com"
	certified.Close()
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprint("TLS ", secure), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := server(t, nil)
				s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
					io.WriteString(w, "a part")
					w.(http.Flusher).Flush()
					time.Sleep(time.Second)
					panic(http.ErrAbortHandler)
				}), nil)
				var network memnet.Network
				ln, err := network.Listen("front.test:1")
				if err != nil {
					t.Fatal(err)
				}
				front := &http.Server{Handler: s.Relay}
				defer front.Close()
				if secure {
					go front.Serve(tls.NewListener(ln, theirs))
				} else {
					go front.Serve(ln)
				}
				c, err := network.DialContext(context.Background(), "tcp", "front.test:1")
				if err != nil {
					t.Fatal(err)
				}
				if secure {
					c = tls.Client(c, ours)
				}
				defer c.Close()
				fmt.Fprintf(c, "GET /hosts/h/ HTTP/1.0\r\nHost: x\r\n\r\n")
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil {
					t.Fatal(err)
				}
				if b, err := io.ReadAll(resp.Body); !errors.Is(err, syscall.ECONNRESET) || string(b) != "a part" {
					t.Errorf("%q, %v; want the part, and a reset", b, err)
				}
				settled(t, s, "after a truncated answer")
			})
		})
	}
}

// MaxBody: refused before the rest is read, with and without a length.
func TestHTTP_BodyTooLarge(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, func(c *relay.Config) { c.MaxBody = 1000 })
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }), nil)
		do(s, "POST", "/hosts/h/x", strings.Repeat("x", 1000)).want(t, "exactly the limit", 200, "")
		do(s, "POST", "/hosts/h/x", strings.Repeat("x", 1001)).want(t, "one more", 413, "body_too_large")
		req, _ := http.NewRequest("POST", s.URL+"/hosts/h/x", struct{ io.Reader }{strings.NewReader(strings.Repeat("x", 5000))})
		resp, body, err := s.DoRequest(req)
		if err != nil || resp.StatusCode != 413 {
			t.Errorf("chunked: %v %q %v, want 413", resp, body, err)
		}
		settled(t, s, "after bodies that were too large")
	})
}

func TestHTTP_HeaderOfTheAnswerIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Big", strings.Repeat("x", 80<<10))
		}), nil)
		get(s, "/hosts/h/x").want(t, "a header above 64 KiB", 502, "bad_answer")
	})
}

// Interim answers pass, but not to HTTP/1.0, which has none.
func TestHTTP_InformationalAnswers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</a.css>; rel=preload")
			w.WriteHeader(103)
			w.WriteHeader(200)
		}), nil)
		c, err := s.Transport().DialContext(context.Background(), "tcp", "relay.test:80")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "GET /hosts/h/ HTTP/1.1\r\nHost: x\r\n\r\n")
		br := bufio.NewReader(c)
		for _, want := range []int{103, 200} {
			resp, err := http.ReadResponse(br, nil)
			if err != nil || resp.StatusCode != want || resp.Header.Get("Link") == "" {
				t.Fatalf("want %d with its Link: %v %v", want, resp, err)
			}
		}
		fmt.Fprintf(c, "GET /hosts/h/ HTTP/1.0\r\nHost: x\r\n\r\n")
		if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != 200 {
			t.Errorf("HTTP/1.0: %v %v, want 200 alone", resp, err)
		}
	})
}

// A client that waits for 100 Continue gets one, before what the host says, and
// none if there is no host.
func TestHTTP_Continue(t *testing.T) {
	const request = "POST /hosts/%s/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1\r\nConnection: close\r\n\r\n"
	for _, tt := range []struct {
		host string
		says int
		want []int
	}{
		{"h", 103, []int{100, 103, 200}},
		{"h", 403, []int{100, 403}},
		{"v2", 0, []int{100, 200}},
		{"nobody", 0, []int{503}},
	} {
		t.Run(fmt.Sprint(tt.host, " ", tt.says), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := relaytest.NewServer(t, &relaytest.Options{Wrap: func(h http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						w.Header().Set("X-Embedder", "1")
						h.ServeHTTP(w, r)
					})
				}})
				s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
					w.WriteHeader(tt.says)
					http.NewResponseController(w).Flush()
					if tt.says < 200 {
						io.Copy(io.Discard, r.Body)
					}
				}), nil)
				s.MustConnect("v2", relaytest.HostConfig{OnDial: relaytest.AnswerText("hello")})
				for range 20 {
					c, err := s.Transport().DialContext(context.Background(), "tcp", "relay.test:80")
					if err != nil {
						t.Fatal(err)
					}
					fmt.Fprintf(c, request, tt.host)
					br := bufio.NewReader(c)
					for _, status := range tt.want {
						resp, err := http.ReadResponse(br, nil)
						if err != nil || resp.StatusCode != status {
							t.Fatalf("%v %v, want %v", resp, err, tt.want)
						}
						if got := resp.Header.Get("X-Embedder") != ""; got != (status >= 200) {
							t.Errorf("%d with the embedder's header: %v", status, got)
						}
						if status == 100 {
							io.WriteString(c, "x")
						}
						if status >= 200 {
							if _, err := io.ReadAll(resp.Body); err != nil {
								t.Errorf("the body: %v", err)
							}
						}
					}
					c.Close()
				}
			})
		})
	}
}

// An upgrade to an agent's service is bytes: what the client sends together
// with its request arrives, and half closes are passed on.
func TestUpgrade_BytesAndEarlyBytes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
			c, brw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nfirst ")
			io.Copy(c, brw)
			io.WriteString(c, "last")
			c.Close()
		}), nil)
		c, err := s.Transport().DialContext(context.Background(), "tcp", "relay.test:80")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "GET /hosts/h/x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nearly ")
		br := bufio.NewReader(c)
		resp, err := http.ReadResponse(br, nil)
		if err != nil || resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "echo" {
			t.Fatalf("%v %v", resp, err)
		}
		c.(interface{ CloseWrite() error }).CloseWrite()
		b, err := io.ReadAll(br)
		if string(b) != "first early last" || err != nil {
			t.Errorf("%q %v", b, err)
		}
		settled(t, s, "after the upgrade")
	})
}

func TestUpgrade_RefusedByTheServiceIsAnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "no upgrades here", http.StatusUpgradeRequired)
		}), nil)
		_, err := s.DialWS(context.Background(), "/hosts/h/x", nil)
		if handshakeStatus(err) != 426 {
			t.Errorf("%v, want the service's own 426", err)
		}
		settled(t, s, "after a refused upgrade")
	})
}

// Behind middleware that wraps the ResponseWriter, below a prefix.
func TestHTTP_BehindMiddleware(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := relaytest.NewServer(t, &relaytest.Options{Prefix: "/relay", Wrap: func(h http.Handler) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/relay/", http.StripPrefix("/relay", h))
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { mux.ServeHTTP(&wrapped{w}, r) })
		}})
		s.StartAgent("h", map[string]agent.Handler{
			"": agent.HTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, r.RequestURI, r.Header["X-Forwarded-Prefix"])
			})),
			"echo": echo(),
		}, nil)
		get(s, "/hosts/h/a%2Fb?c").want(t, "below a prefix", 200, "/a%2Fb?c[/relay/hosts/h]")
		conn, err := s.DialWS(context.Background(), "/connect/h?service=echo", nil)
		if err != nil {
			t.Fatal(err)
		}
		c := transport.NewStreamConn(conn)
		io.WriteString(c, "through middleware")
		c.CloseWrite()
		if b, err := io.ReadAll(c); string(b) != "through middleware" {
			t.Errorf("%q %v", b, err)
		}
	})
}

// wrapped is what middleware makes of a ResponseWriter.
type wrapped struct{ http.ResponseWriter }

func (w *wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestRoundTripper_FromInsideTheServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			fmt.Fprint(w, r.Method, " ", r.RequestURI, " ", r.Host, " ", string(b))
		}), nil)
		client := &http.Client{Transport: s.Relay.RoundTripper("h", relay.Target{})}
		resp, err := client.Post("http://anything.example/a?b", "text/plain", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(b) != "POST /a?b anything.example body" {
			t.Errorf("%q", b)
		}
		_, err = (&http.Client{Transport: s.Relay.RoundTripper("nobody", relay.Target{})}).Get("http://x/")
		if !errors.Is(err, relay.ErrHostOffline) {
			t.Errorf("an offline host: %v", err)
		}
		s.MustConnect("v2", relaytest.HostConfig{OnDial: relaytest.AnswerText("from v2")})
		resp, err = (&http.Client{Transport: s.Relay.RoundTripper("v2", relay.Target{})}).Get("http://x/")
		if err != nil {
			t.Fatal(err)
		}
		b, _ = io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(b) != "from v2" {
			t.Errorf("%q", b)
		}
		settled(t, s, "after round trips")
		synctest.Wait()
	})
}
