package sim

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/transport"
)

// service is what the hosts offer: it notes what reaches it, checks what it
// gets, and answers with what the client can check.
type service struct {
	w *World
	p *process // of its host
}

// ServeHTTP answers a request after the delay that it asks for, with as many
// bytes as it asks for; or echoes the messages of a WebSocket.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := markedID([]byte(r.URL.EscapedPath()))
	s.w.outcomes.served(id, s.p)
	if strings.HasSuffix(r.URL.Path, "/ws") {
		if conn, err := transport.Accept(w, r, &transport.AcceptOptions{Options: transport.Options{ReadLimit: -1}}); err == nil {
			echoMessages(conn, func() {})
		}
		return
	}
	q := r.URL.Query()
	number := func(name string) int {
		n, _ := strconv.Atoi(q.Get(name))
		return n
	}
	pause(r.Context(), time.Duration(number("read"))*time.Millisecond)
	s.checkBody(id, r.Body, int(r.ContentLength))
	pause(r.Context(), time.Duration(number("delay"))*time.Millisecond)
	if r.Context().Err() != nil {
		s.w.tr.log("%s is cancelled in %s", id, s.p.label)
		return
	}
	size := number("size")
	w.Header().Set("Sim-Id", id)
	w.Header().Set("Content-Length", strconv.Itoa(size))
	w.Write(patterned(id, 0, size))
}

// checkBody reads a request's body: what comes is what was sent, and it ends
// only where it did.
func (s *service) checkBody(id string, body io.Reader, size int) {
	p, err := io.ReadAll(body)
	if at := differs(id, 0, p); at >= 0 {
		s.w.tr.violated("I4 bytes", "%s: byte %d of the body is not what was sent", id, at)
	}
	r := s.w.outcomes.find(id)
	if err == nil && r != nil && len(p) != r.bodySize {
		s.w.tr.violated("I4 bytes", "%s: the body ended cleanly after %d of %d bytes", id, len(p), r.bodySize)
	}
}

// serveRaw echoes a byte stream. Its first line names it.
func (s *service) serveRaw(_ context.Context, c *agent.Stream) {
	br := bufio.NewReader(c)
	line, err := br.ReadString('\n')
	if err != nil {
		if err != io.EOF {
			c.CloseWith(transport.CloseInternal, "no first line")
		}
		return // the client left before it had said anything
	}
	s.w.outcomes.served(markedID([]byte(line)), s.p)
	if _, err := io.Copy(c, br); err != nil {
		c.CloseWith(transport.CloseInternal, "broken")
	}
}

// echoMessages sends each message back until the connection ends, with the code
// of its end. got is called for each.
func echoMessages(c transport.Conn, got func()) {
	for {
		t, r, err := c.Reader()
		var p []byte
		if err == nil {
			p, err = io.ReadAll(r)
		}
		if err != nil {
			c.CloseNow()
			<-c.Done()
			return
		}
		got()
		if c.Write(t, p) != nil {
			c.CloseNow()
			<-c.Done()
			return
		}
	}
}
