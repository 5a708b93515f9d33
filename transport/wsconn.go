package transport

import (
	"bufio"
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

// wsConn is a Conn over a WebSocket.
//
// The WebSocket library does the framing. It never sees a context that can
// end, since that would cut the connection: wsConn bounds writes by rawConn's
// timer, and Close by one of its own.
type wsConn struct {
	// Immutable after Accept or Dial.
	ws         *websocket.Conn
	raw        *rawConn
	br         *bufio.Reader // the library's, owned by the holder of the reading side; nil if ws was dialed
	opts       Options
	remoteAddr string
	reader     wsReader // its fields are owned by the reading goroutine
	writer     wsWriter // its fields are owned by the holder of the library's message lock
	done       chan struct{}

	// reading tells who has the reading side of ws: see takeReading.
	reading atomic.Uint32
	drained chan struct{} // made by startDrain, closed by drain

	// end is how the connection ended; nil before. Set once.
	end atomic.Pointer[CloseError]
	// inFlight counts data writes under way; pings and pongs wait for nobody.
	inFlight atomic.Int32

	// Guarded by mu.
	mu       sync.Mutex
	lastPing uint64
	pings    []pingWait  // pings without a pong, the oldest first
	cutTimer *time.Timer // cuts a connection that closes, at cutAt
	cutAt    time.Time
}

// newWSConn returns a wsConn that lacks its ws and raw.
func newWSConn(o *Options) *wsConn {
	c := &wsConn{opts: o.withDefaults(), done: make(chan struct{})}
	c.reader.c = c
	c.writer.c = c
	return c
}

// start completes c, whose raw is set, after the handshake.
func (c *wsConn) start(ws *websocket.Conn) {
	c.ws = ws
	ws.SetReadLimit(-1) // wsReader has its own, after which the connection can be drained
	if a := c.raw.nc.RemoteAddr(); a != nil {
		c.remoteAddr = a.String()
	}
}

func (c *wsConn) Await() {
	if c.br == nil || c.takeReading() != nil {
		return
	}
	defer c.giveReading()
	if c.reader.r == nil {
		_, _ = c.br.Peek(1) // an error comes again
	}
}

func (c *wsConn) Reader() (MessageType, io.Reader, error) {
	if err := c.takeReading(); err != nil {
		return 0, nil, err
	}
	defer c.giveReading()
	if c.reader.r != nil {
		return 0, nil, errUnread
	}
	t, r, err := c.ws.Reader(context.Background())
	if err != nil {
		return 0, nil, c.readFailed(err)
	}
	c.reader.r, c.reader.total = r, 0
	return MessageType(t), &c.reader, nil
}

// wsReader reads one message. There is one per connection, used again and
// again, so that a message costs no allocation.
type wsReader struct {
	c     *wsConn
	r     io.Reader // nil between messages
	total int64     // bytes of the message so far
}

func (r *wsReader) Read(p []byte) (int, error) {
	c := r.c
	if err := c.takeReading(); err != nil {
		return 0, err
	}
	defer c.giveReading()
	if r.r == nil {
		return 0, io.EOF
	}
	limit := c.opts.ReadLimit
	if limit >= 0 {
		p = p[:min(int64(len(p)), limit-r.total+1)]
	}
	n, err := r.r.Read(p)
	if err != nil {
		n = 0 // the library has not unmasked what it read before an error
	}
	r.total += int64(n)
	if limit >= 0 && r.total > limit {
		return n - 1, c.finish(&CloseError{Code: CloseTooBig, Reason: limitReason(limit)})
	}
	switch err {
	case nil:
		return n, nil
	case io.EOF:
		r.r = nil
		return n, io.EOF
	default:
		return n, c.readFailed(err)
	}
}

func (c *wsConn) Write(t MessageType, p []byte) error {
	if t != Text && t != Binary {
		return errMessageType
	}
	if e := c.end.Load(); e != nil {
		return e
	}
	c.inFlight.Add(1)
	err := c.ws.Write(context.Background(), websocket.MessageType(t), p)
	c.inFlight.Add(-1)
	if err != nil {
		return c.writeFailed(err)
	}
	return nil
}

func (c *wsConn) Writer(t MessageType) (io.WriteCloser, error) {
	if t != Text && t != Binary {
		return nil, errMessageType
	}
	if e := c.end.Load(); e != nil {
		return nil, e
	}
	w, err := c.ws.Writer(context.Background(), websocket.MessageType(t))
	if err != nil {
		return nil, c.writeFailed(err)
	}
	c.writer.w = w
	return &c.writer, nil
}

// wsWriter writes one message in fragments; like wsReader there is one.
type wsWriter struct {
	c *wsConn
	w io.WriteCloser // nil between messages
}

func (w *wsWriter) Write(p []byte) (int, error) {
	if w.w == nil {
		return 0, errWriterClosed
	}
	w.c.inFlight.Add(1)
	n, err := w.w.Write(p)
	w.c.inFlight.Add(-1)
	if err != nil {
		err = w.c.writeFailed(err)
	}
	return n, err
}

func (w *wsWriter) Close() error {
	if w.w == nil {
		return errWriterClosed
	}
	inner := w.w
	w.w = nil // before Close lets the next writer in
	w.c.inFlight.Add(1)
	err := inner.Close()
	w.c.inFlight.Add(-1)
	if err != nil {
		return w.c.writeFailed(err)
	}
	return nil
}

func (c *wsConn) Done() <-chan struct{} { return c.done }
func (c *wsConn) Writing() bool         { return c.inFlight.Load() > 0 }
func (c *wsConn) Subprotocol() string   { return c.ws.Subprotocol() }
func (c *wsConn) RemoteAddr() string    { return c.remoteAddr }
