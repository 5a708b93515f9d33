package relay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// StallTimeout runs only while bytes wait: an answer that ends after a longer
// quiet time is whole, its trailers too.
func TestHTTP_QuietEndOfAnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			io.WriteString(w, "data: 1\n\n")
			w.(http.Flusher).Flush()
			time.Sleep(6 * time.Minute) // StallTimeout is 5
			w.Header().Set("X-Sum", "1")
		}), nil)
		req, _ := http.NewRequest("GET", s.URL+"/hosts/h/events", nil)
		resp, body, err := s.DoRequest(req)
		if err != nil || body != "data: 1\n\n" || resp.Trailer.Get("X-Sum") != "1" {
			t.Errorf("%q, %v; want the whole answer, and its trailer", body, err)
		}
	})
}

// A client that reads nothing is cut after StallTimeout, whatever it is that
// waits to be written.
func TestHTTP_ClientThatReadsNothing(t *testing.T) {
	large := strings.Repeat("x", 30<<10)
	for name, tt := range map[string]struct {
		request string
		serve   func(w http.ResponseWriter, r *http.Request)
	}{
		"the header of an answer": {"GET /hosts/h/ HTTP/1.1\r\nHost: x\r\n\r\n", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Large", large)
			w.Header().Set("Content-Length", "1")
			w.(http.Flusher).Flush()
			time.Sleep(time.Millisecond)
			io.WriteString(w, "x")
		}},
		"the end of an answer": {"GET /hosts/h/ HTTP/1.1\r\nHost: x\r\n\r\n", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Large", large)
		}},
		"what comes before the answer": {"GET /hosts/h/ HTTP/1.1\r\nHost: x\r\n\r\n", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Large", large)
			for range 10 {
				w.WriteHeader(103)
			}
			<-r.Context().Done()
		}},
		"the relay's own error":   {"GET /hosts/nobody/ HTTP/1.1\r\nHost: x\r\n\r\n", nil},
		"the relay's own answer":  {"GET /presence?hostIds=h HTTP/1.1\r\nHost: x\r\n\r\n", nil},
		"the refusal of a ticket": {"GET /v2/dial HTTP/1.1\r\nHost: x\r\n\r\n", nil},
		"a WebSocket's handshake": {strings.Repeat("GET /hosts/h/ HTTP/1.1\r\nHost: x\r\n\r\n", 2) +
			"GET /connect/h HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
			func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Large", strings.Repeat("x", 32<<10-110)) // two such answers leave room for no other in 64 KiB
			}},
		"the refusal of a call": {"GET /node/dial HTTP/1.1\r\nHost: x\r\n\r\n", nil},
		"an upgraded answer": {strings.Repeat("GET /hosts/h/ HTTP/1.1\r\nHost: x\r\n\r\n", 2) +
			"GET /hosts/h/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Large", large)
			if r.Header.Get("Upgrade") == "" {
				return
			}
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "x")
			w.WriteHeader(101)
			c, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				io.WriteString(c, "x")
				io.Copy(io.Discard, c)
				c.Close()
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := server(t, nil)
				s.StartAgent("h", handler(tt.serve), nil)
				c, err := s.Transport().DialContext(context.Background(), "tcp", "relay.test:80")
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				go func() {
					for range 1000 {
						if _, err := fmt.Fprint(c, tt.request); err != nil {
							return
						}
					}
				}()
				time.Sleep(time.Hour)
				c.SetWriteDeadline(time.Now().Add(time.Second))
				if _, err := fmt.Fprint(c, tt.request); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("after an hour in which nothing could be written the connection is still there: %v", err)
				}
				settled(t, s, "an hour in which nothing could be written")
			})
		})
	}
}
