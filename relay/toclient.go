package relay

import (
	"maps"
	"net"
	"net/http"
	"time"
)

// toClient is the way to the client of a request. What is written to it has
// limit for each step; a wait for the host has no limit. A deadline is therefore
// set before each write and taken back before each wait: over HTTP/2 it is a
// timer that resets the stream, whether or not anything waits to be written.
//
// It is used by the goroutine of the request's handler.
type toClient struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	limit time.Duration
	set   bool // a deadline is set
}

// unbind frees the connection of w from the embedder's Read- and WriteTimeout:
// they would cut a request that waits for a host, for another node, for the
// Store or for the embedder's own functions.
func unbind(w http.ResponseWriter) *http.ResponseController {
	rc := http.NewResponseController(w)
	rc.SetReadDeadline(time.Time{})
	rc.SetWriteDeadline(time.Time{})
	return rc
}

// toClient unbinds w; StallTimeout takes the place of the embedder's timeouts.
func (s *Server) toClient(w http.ResponseWriter) *toClient {
	return &toClient{w: w, rc: unbind(w), limit: s.cfg.StallTimeout}
}

// bound gives what is written next, by net/http at the end of the handler too,
// its time. What follows a write without a wait shares the time of that write.
func (c *toClient) bound() {
	if !c.set {
		c.begin()
	}
}

func (c *toClient) begin() {
	c.rc.SetWriteDeadline(time.Now().Add(c.limit))
	c.set = true
}

// wait is called before a wait for the host.
func (c *toClient) wait() {
	c.rc.SetWriteDeadline(time.Time{})
	c.set = false
}

func (c *toClient) Write(p []byte) (int, error) {
	c.begin()
	return c.w.Write(p)
}

// flush sends what is buffered, the header at least.
func (c *toClient) flush() error {
	c.bound()
	return c.rc.Flush()
}

// informs has out tell the client of r what comes before the answer; HTTP/1.0
// has no 1xx (RFC 9110, section 15.2).
func (c *toClient) informs(r *http.Request, out *outbound) {
	if !r.ProtoAtLeast(1, 1) {
		return
	}
	out.inform = func(status int, from http.Header) { c.inform(c.w, status, from) }
	// Left to net/http the upload would write it, at the same time as this
	// goroutine writes what the host says. Over HTTP/2, where one goroutine
	// writes everything, it is left to net/http, which does not tell of Expect.
	// A writer that is not net/http's might take it for the answer.
	w, ours := innermost(c.w).(interface {
		http.ResponseWriter
		EnableFullDuplex() error
	})
	if ours && r.ProtoMajor == 1 && headerHas(r.Header, "Expect", "100-continue") {
		out.proceed = func() { c.inform(w, http.StatusContinue, nil) }
	}
}

// inform writes a 1xx answer to w. What the embedder has set is for the answer
// itself, and stays.
func (c *toClient) inform(w http.ResponseWriter, status int, from http.Header) {
	h := w.Header()
	embedders := maps.Clone(h)
	clear(h)
	copyHeader(h, from)
	c.bound()
	w.WriteHeader(status)
	c.wait()
	clear(h)
	maps.Copy(h, embedders)
}

// innermost is what the embedder's middleware has wrapped.
func innermost(w http.ResponseWriter) http.ResponseWriter {
	for {
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = u.Unwrap()
	}
}

// reset ends the connection of an HTTP/1.0 client, for which any other end is
// the end of the answer. It takes the socket itself: TLS would say goodbye. What
// the kernel has not sent yet is lost. Where the embedder's listener hides the
// socket, and no TLS tells an end from a goodbye, a part still looks whole.
func (c *toClient) reset() {
	outer, _, err := c.rc.Hijack()
	if err != nil {
		return // net/http closes it
	}
	defer outer.Close()
	inner := outer
	for {
		over, ok := inner.(interface{ NetConn() net.Conn }) // as *tls.Conn is
		if !ok {
			break
		}
		inner = over.NetConn()
	}
	if socket, ok := inner.(interface{ SetLinger(sec int) error }); ok {
		socket.SetLinger(0)
	}
	inner.Close()
}

// boundReply bounds the writing of an answer of the relay's own.
func (s *Server) boundReply(w http.ResponseWriter) {
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.cfg.StallTimeout))
}
