//go:build linux

package chaos

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/dialback/dialback/transport"
)

// identityHeader is in every answer of a service.
const identityHeader = "X-Identity"

// pattern is what all bodies are cut from: bytes that tell their place.
var pattern = func() []byte {
	p := make([]byte, 4<<20)
	for i := range p {
		p[i] = byte(i*7 + i>>8*13 + i>>16*31)
	}
	return p
}()

// posts counts how often each POST has run. It is safe for concurrent use.
type posts struct {
	mu   sync.Mutex
	runs map[string]int
}

func (p *posts) run(id string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runs[id]++
	return p.runs[id]
}

// service is what one process of a host offers over HTTP: /get?n=N is N bytes,
// /post?id=ID what was posted, and a WebSocket its identity, then an echo.
type service struct {
	w  *world
	id identity
}

func (s service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(identityHeader, s.id.String())
	switch {
	case r.Header.Get("Upgrade") != "":
		s.echoMessages(w, r)
	case r.URL.Path == "/post":
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // it is not whole, and must not run
		}
		s.w.ran(s.id.host, r.URL.Query().Get("id"))
		_, _ = w.Write(body)
	default:
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		n = min(n, len(pattern))
		// In two parts, so that it has no length in its header.
		_, _ = w.Write(pattern[:n/2])
		_ = http.NewResponseController(w).Flush()
		_, _ = w.Write(pattern[n/2 : n])
	}
}

func (s service) echoMessages(w http.ResponseWriter, r *http.Request) {
	conn, err := transport.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	if conn.Write(transport.Text, []byte(s.id.String())) != nil {
		return
	}
	echoMessages(conn)
}

func echoMessages(conn transport.Conn) {
	for {
		t, p, err := readMessage(conn)
		if err != nil || conn.Write(t, p) != nil {
			return
		}
	}
}

func readMessage(conn transport.Conn) (transport.MessageType, []byte, error) {
	t, r, err := conn.Reader()
	if err != nil {
		return t, nil, err
	}
	p, err := io.ReadAll(r)
	return t, p, err
}

// ran records that a POST has run.
func (w *world) ran(host, id string) {
	if n := w.posts.run(id); n > 1 {
		w.ledger.violate(ruleTwice, "POST %s of %s has run %d times", id, host, n)
	}
}

// nodeKeepAlive is the idle clock of Node's HTTP server.
const nodeKeepAlive = 5 * time.Second

// listen serves a service at a loopback port, with the keep-alive of Node, and
// returns its URL. It ends with the test.
func (s service) listen(tb testing.TB) string {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	hs := &http.Server{Handler: s, IdleTimeout: nodeKeepAlive}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = hs.Serve(ln) // until Close
	}()
	tb.Cleanup(func() {
		_ = hs.Close()
		<-served
	})
	return "http://" + ln.Addr().String()
}

// echoBytes is a raw service: a line with its identity, then an echo.
func (s service) echoBytes(c io.ReadWriter) {
	if _, err := fmt.Fprintln(c, s.id); err == nil {
		_, _ = io.Copy(c, c)
	}
}
