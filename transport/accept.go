package transport

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/coder/websocket"
)

// AcceptOptions configure Accept.
type AcceptOptions struct {
	Options
	// Subprotocol is echoed if the client offered it.
	Subprotocol string
}

// Accept upgrades the request; o may be nil. It follows Unwrap to find the
// Hijacker, and clears the deadlines of the server: the handshake's answer has
// WriteTimeout, as any other write. Origin is the caller's to check. After it
// returns the handler may return: the connection lives on by itself, and is the
// caller's to close. On an error an answer has been written.
func Accept(w http.ResponseWriter, r *http.Request, o *AcceptOptions) (Conn, error) {
	if o == nil {
		o = &AcceptOptions{}
	}
	c := newWSConn(&o.Options)
	wo := &websocket.AcceptOptions{
		InsecureSkipVerify: true,
		CompressionMode:    websocket.CompressionDisabled,
	}
	if o.Subprotocol != "" {
		wo.Subprotocols = []string{o.Subprotocol}
	}
	var answered time.Time // no limit
	if d := c.opts.WriteTimeout; d > 0 {
		answered = time.Now().Add(d)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(answered)
	hw := &hijackWriter{ResponseWriter: w, conn: c}
	if hijackable(w) {
		w = hw
	} // else the library finds that out, and answers
	ws, err := websocket.Accept(w, r, wo)
	if err != nil {
		if c.raw != nil {
			c.raw.cutOff(err)
		}
		return nil, fmt.Errorf("transport: %w", err)
	}
	c.subprotocol = ws.Subprotocol()
	hw.network.release(ws)
	return c, nil
}

// hijackable reports whether w, or what it wraps, is a Hijacker.
func hijackable(w http.ResponseWriter) bool {
	for {
		switch t := w.(type) {
		case http.Hijacker:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return false
		}
	}
}

// answerRoom is the size of the buffer through which a handshake is answered.
const answerRoom = 512

// hijackWriter is the ResponseWriter that the WebSocket library sees. Its
// Hijack puts the network beneath conn, and gives the library a view of it for
// the handshake. The 4 KiB twice that net/http has are let go: they are most of
// what an idle connection would cost.
type hijackWriter struct {
	http.ResponseWriter
	conn    *wsConn
	network *handshakeConn // set by Hijack
}

// Hijack implements http.Hijacker.
func (w *hijackWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	nc, brw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	// The deadlines of ReadTimeout and WriteTimeout of the http.Server. A client
	// that has left is found by the first read: an error from here on would have
	// the library write an answer, for which it is too late.
	if err := nc.SetDeadline(time.Time{}); err != nil {
		_ = nc.Close()
	}
	var r io.Reader = nc
	if n := brw.Reader.Buffered(); n > 0 {
		early, _ := brw.Reader.Peek(n)
		r = &headReader{head: bytes.Clone(early), rest: nc}
	}
	c := w.conn
	w.network = c.connect(nc, r, false)
	// What the library gets to read from is empty, and soon forgotten.
	return w.network, bufio.NewReadWriter(bufio.NewReaderSize(c.raw, 16), bufio.NewWriterSize(c.raw, answerRoom)), nil
}

// WriteHeaderNow is looked for by the WebSocket library: gin's writer holds
// the header back until then.
func (w *hijackWriter) WriteHeaderNow() {
	if g, ok := w.ResponseWriter.(interface{ WriteHeaderNow() }); ok {
		g.WriteHeaderNow()
	}
}

// headReader yields head, which was read ahead of rest, and then rest.
type headReader struct {
	head []byte
	rest io.Reader
}

func (r *headReader) Read(p []byte) (int, error) {
	if len(r.head) == 0 {
		r.head = nil
		return r.rest.Read(p)
	}
	n := copy(p, r.head)
	r.head = r.head[n:]
	return n, nil
}
