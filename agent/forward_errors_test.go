package agent_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/internal/memnet"
	"github.com/dialback/dialback/transport"
)

func TestForwardHTTP_ServiceDown(t *testing.T) {
	for _, tt := range []struct {
		name, method, message string
		status                int
		local                 func(net.Conn) // nil: nobody listens
	}{
		{"refused", "GET", "service down: connection refused", 502, nil},
		{"refused POST", "POST", "service down: connection refused", 502, nil},
		{"closes without an answer", "POST", "the service closed the connection before it answered", 502, func(c net.Conn) { c.Close() }},
		{"no HTTP", "GET", "the service's answer is not valid HTTP/1.1: the first line is malformed", 502, func(c net.Conn) {
			_, _ = io.WriteString(c, "SSH-2.0-x\r\n\r\n")
			c.Close()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFakeRelay(t)
				if tt.local != nil {
					r.local(tt.local)
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

// A service that answers and closes before it was asked has answered.
func TestForwardHTTP_AnswersUnread(t *testing.T) { synctest.Test(t, testForwardHTTPAnswersUnread) }
func testForwardHTTPAnswersUnread(t *testing.T) {
	for _, request := range []string{get, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na"} {
		r := newFakeRelay(t)
		dial := func(context.Context, string, string) (net.Conn, error) {
			conn, service := memnet.Pipe()
			_, _ = io.WriteString(service, "HTTP/1.1 503 x\r\nContent-Length: 4\r\n\r\nbusy")
			_ = service.Close()
			return conn, nil
		}
		c := serving(t, r, agent.ForwardHTTPWith("http://local:80", agent.HTTPOptions{DialContext: dial}))
		if got, ended := exchanged(t, c, request); !strings.HasSuffix(got, "busy") || ended != nil {
			t.Errorf("the client got %q, %v", got, ended)
		}
	}
}

// What one large head took is not kept by the stream that waits for the next
// request.
func TestForwardHTTP_IdleStreamKeepsNoLargeHead(t *testing.T) {
	synctest.Test(t, testForwardHTTPIdleStreamKeepsNoLargeHead)
}
func testForwardHTTPIdleStreamKeepsNoLargeHead(t *testing.T) {
	large := strings.Repeat("a:\r\n", 1<<18-100) // 12 MiB when it has been parsed
	r := newFakeRelay(t)
	d := rawService(t, r, "HTTP/1.1 204 x\r\n\r\nOPEN", "HTTP/1.1 204 x\r\n"+large+"\r\n", "HTTP/1.1 204 x\r\n"+large+"\r\n")
	c := serving(t, r, agent.ForwardHTTPWith("http://local:80", agent.HTTPOptions{DialContext: d.dial}))
	s := bareStream(c, "t")
	exchange := func(request string) {
		s.write(request)
		for got := ""; !strings.HasSuffix(got, "\r\n\r\n"); {
			m, err := s.message()
			if err != nil || !strings.HasPrefix(got+m, "HTTP/1.1 204") {
				t.Fatalf("the answer is %.100q, %v", got+m, err)
			}
			got += m
		}
		synctest.Wait()
	}
	heap := func() int64 {
		runtime.GC()
		runtime.GC() // what is in pools
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	exchange(get)
	before := heap()
	exchange("GET / HTTP/1.1\r\nHost: x\r\n" + large + "\r\n")
	if kept := heap() - before; kept > 4<<20 {
		t.Errorf("the stream keeps %d KiB", kept>>10)
	}
	s.Close(transport.CloseNormal, "")
}
