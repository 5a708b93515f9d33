package agent_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
)

// refuser answers 404 and reads nothing, except under /echo.
func refuser(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/echo":
		_, _ = io.Copy(w, r.Body)
		return
	case "/close":
		_ = r.Body.Close()
	}
	http.Error(w, "no", http.StatusNotFound)
}

// A stream whose answer was whole is used again, whatever the handler has left
// of the request's body.
func TestHTTP_UnreadBodyLeavesTheStreamUsable(t *testing.T) {
	for _, tt := range []struct{ name, path, head, body string }{
		{"10 bytes", "/", "Content-Length: 10", "0123456789"},
		{"100 KiB", "/", fmt.Sprint("Content-Length: ", 100<<10), strings.Repeat("x", 100<<10)},
		{"chunked", "/", "Transfer-Encoding: chunked", "5\r\nhello\r\n3\r\nyou\r\n0\r\n\r\n"},
		{"closed by the handler", "/close", "Content-Length: 10", "0123456789"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := serving(t, newFakeRelay(t), agent.HTTP(http.HandlerFunc(refuser)))
				conn, _ := dialStream(c)(t.Context(), "", "")
				defer conn.Close()
				in := bufio.NewReader(conn)
				for i := range 50 {
					_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\n%s\r\n\r\n", tt.path, tt.head)
					if i%2 == 0 {
						synctest.Wait() // the answer is out before the body comes
					}
					_, _ = io.WriteString(conn, tt.body)
					res, err := http.ReadResponse(in, nil)
					if got := body(t, res, err); res.StatusCode != 404 || got != "no\n" || res.Close {
						t.Fatalf("request %d: %s %q, close %v", i, res.Status, got, res.Close)
					}
					_, _ = io.WriteString(conn, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nmore")
					res, err = http.ReadResponse(in, nil)
					if got := body(t, res, err); res.StatusCode != 200 || got != "more" {
						t.Fatalf("the request behind request %d: %s %q", i, res.Status, got)
					}
				}
			})
		})
	}
}

// An upload that stalls, or does not end, neither delays the answer nor is
// taken for the next request: the stream ends.
func TestHTTP_UnreadBodyThatDoesNotEnd(t *testing.T) {
	for _, tt := range []struct {
		name, head, body string
	}{
		{"stalls", "Content-Length: 100", "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"},
		{"stalls in a chunk", "Transfer-Encoding: chunked", "50\r\nGET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"},
		{"is large", fmt.Sprint("Content-Length: ", 10<<20), strings.Repeat("GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n", 16<<10)},
		{"was never asked for", "Content-Length: 100\r\nExpect: 100-continue", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := serving(t, newFakeRelay(t), agent.HTTP(http.HandlerFunc(refuser)))
				conn, _ := dialStream(c)(t.Context(), "", "")
				defer conn.Close()
				began := time.Now()
				_, _ = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: h\r\n%s\r\n\r\n", tt.head)
				go func() { _, _ = io.WriteString(conn, tt.body) }()
				in := bufio.NewReader(conn)
				res, err := http.ReadResponse(in, nil)
				if err != nil || res.StatusCode != 404 {
					t.Fatalf("answer: %v, %v", res, err)
				}
				if d := time.Since(began); d != 0 {
					t.Errorf("the head of the answer came after %v", d)
				}
				if got := body(t, res, err); got != "no\n" {
					t.Errorf("the answer is %q", got)
				}
				if rest, _ := io.ReadAll(in); len(rest) > 0 {
					t.Errorf("behind the answer came %q, want the end", rest)
				}
				if d := time.Since(began); d > time.Second {
					t.Errorf("the stream ended after %v", d)
				}
			})
		})
	}
}

// A handler that has taken the stream over keeps it: nothing is read from it
// or written to it when the handler returns.
func TestHTTP_HijackedStreamIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		c := serving(t, newFakeRelay(t), agent.HTTP(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			go func() {
				defer close(done)
				defer conn.Close()
				time.Sleep(time.Minute)
				p := make([]byte, 10)
				_, err := io.ReadFull(rw, p)
				if err != nil {
					t.Errorf("read from a hijacked stream: %v", err)
				}
				_, _ = conn.Write(p)
			}()
		})))
		conn, _ := dialStream(c)(t.Context(), "", "")
		defer conn.Close()
		_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n0123456789")
		got, err := io.ReadAll(conn)
		if string(got) != "0123456789" || err != nil {
			t.Errorf("the handler's stream brought %q, %v", got, err)
		}
		<-done
	})
}
