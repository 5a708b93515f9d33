package transport

import (
	"context"
	"encoding/binary"
	"errors"
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
	opts       Options
	remoteAddr string
	reader     wsReader // its fields are owned by the reading goroutine
	writer     wsWriter // its fields are owned by the holder of the library's message lock
	done       chan struct{}

	// end is how the connection ended; nil before. Set once.
	end atomic.Pointer[CloseError]

	// Guarded by mu.
	mu       sync.Mutex
	lastPing uint64
	pings    []pingWait // pings without a pong, the oldest first
}

// pingWait is a call of Ping that waits.
type pingWait struct {
	id   uint64
	pong chan struct{} // closed when the pong came
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
	limit := c.opts.ReadLimit
	if limit < 0 {
		limit = -1
	}
	ws.SetReadLimit(limit)
	if a := c.raw.nc.RemoteAddr(); a != nil {
		c.remoteAddr = a.String()
	}
}

func (c *wsConn) Reader() (MessageType, io.Reader, error) {
	if e := c.end.Load(); e != nil {
		return 0, nil, e
	}
	if c.reader.r != nil {
		return 0, nil, errUnread
	}
	t, r, err := c.ws.Reader(context.Background())
	if err != nil {
		return 0, nil, c.readFailed(err)
	}
	c.reader.r = r
	return MessageType(t), &c.reader, nil
}

// wsReader reads one message. There is one per connection, used again and
// again, so that a message costs no allocation.
type wsReader struct {
	c *wsConn
	r io.Reader // nil between messages
}

func (r *wsReader) Read(p []byte) (int, error) {
	if r.r == nil {
		return 0, io.EOF
	}
	n, err := r.r.Read(p)
	switch err {
	case nil:
		return n, nil
	case io.EOF:
		r.r = nil
		return n, io.EOF
	default:
		return n, r.c.readFailed(err)
	}
}

func (c *wsConn) Write(t MessageType, p []byte) error {
	if t != Text && t != Binary {
		return errMessageType
	}
	if e := c.end.Load(); e != nil {
		return e
	}
	if err := c.ws.Write(context.Background(), websocket.MessageType(t), p); err != nil {
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
	n, err := w.w.Write(p)
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
	if err := inner.Close(); err != nil {
		return w.c.writeFailed(err)
	}
	return nil
}

func (c *wsConn) Ping(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if e := c.end.Load(); e != nil {
		return e
	}
	pong := make(chan struct{})
	c.mu.Lock()
	c.lastPing++
	id := c.lastPing
	c.pings = append(c.pings, pingWait{id, pong})
	c.raw.sendPing(id)
	c.mu.Unlock()
	select {
	case <-pong:
		return nil
	case <-ctx.Done():
		c.forgetPing(id)
		return ctx.Err()
	case <-c.done:
		return c.end.Load()
	}
}

func (c *wsConn) forgetPing(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, p := range c.pings {
		if p.id == id {
			c.pings = append(c.pings[:i], c.pings[i+1:]...)
			return
		}
	}
}

// onPing is called by the WebSocket library on the reading goroutine. It
// returns false: the pong is ours to send.
func (c *wsConn) onPing(_ context.Context, payload []byte) bool {
	c.raw.sendPong(payload)
	return false
}

// onPong is called by the WebSocket library on the reading goroutine. A pong
// answers its ping and all before it.
func (c *wsConn) onPong(_ context.Context, payload []byte) {
	if len(payload) != 8 {
		return
	}
	id := binary.BigEndian.Uint64(payload)
	c.mu.Lock()
	defer c.mu.Unlock()
	if id > c.lastPing {
		return
	}
	n := 0
	for n < len(c.pings) && c.pings[n].id <= id {
		close(c.pings[n].pong)
		n++
	}
	c.pings = c.pings[n:]
	if len(c.pings) == 0 {
		c.pings = nil
	}
}

func (c *wsConn) Close(code CloseCode, reason string) {
	code, reason = sendable(code, reason)
	c.finish(&CloseError{Code: code, Reason: reason})
}

func (c *wsConn) CloseNow() {
	c.finish(&CloseError{Code: CloseAbnormal})
}

func (c *wsConn) Done() <-chan struct{} { return c.done }
func (c *wsConn) Writing() bool         { return c.raw.writing() }
func (c *wsConn) Subprotocol() string   { return c.ws.Subprotocol() }
func (c *wsConn) RemoteAddr() string    { return c.remoteAddr }

// finish ends the connection with e, if nothing has ended it yet, and returns
// how it ended.
func (c *wsConn) finish(e *CloseError) *CloseError {
	if c.end.CompareAndSwap(nil, e) {
		go c.shutdown(e)
	}
	return c.end.Load()
}

// shutdown takes the connection down. It is the last goroutine of c.
func (c *wsConn) shutdown(e *CloseError) {
	if e.Remote || e.Code == CloseAbnormal {
		c.raw.cutOff(e)
		_ = c.ws.CloseNow()
	} else {
		t := time.AfterFunc(c.opts.CloseTimeout, c.cutOff)
		_ = c.ws.Close(websocket.StatusCode(e.Code), e.Reason)
		t.Stop()
		c.raw.cutOff(e)
	}
	c.raw.wait()
	close(c.done)
}

func (c *wsConn) cutOff() { c.raw.cutOff(c.end.Load()) }

// readFailed turns an error of the WebSocket library's reader into the end of
// the connection.
func (c *wsConn) readFailed(err error) error {
	if e := c.end.Load(); e != nil {
		return e
	}
	readErr, _ := c.raw.errors()
	var ce websocket.CloseError
	switch {
	case errors.As(err, &ce):
		return c.finish(&CloseError{Code: CloseCode(ce.Code), Reason: ce.Reason, Remote: true})
	case errors.Is(err, websocket.ErrMessageTooBig):
		// The library has sent the same.
		return c.finish(&CloseError{Code: CloseTooBig, Reason: limitReason(c.opts.ReadLimit)})
	case readErr != nil:
		return c.finish(abnormal(readErr))
	default:
		return c.finish(&CloseError{Code: CloseProtocolError, Err: err})
	}
}

// writeFailed turns an error of the WebSocket library's writer into a
// *CloseError.
func (c *wsConn) writeFailed(err error) error {
	if e := c.end.Load(); e != nil {
		return e
	}
	if _, writeErr := c.raw.errors(); writeErr != nil {
		return abnormal(writeErr)
	}
	// The library refuses to write, since it has answered the peer's close or
	// closed for an error: the reading goroutine is about to say how.
	t := time.NewTimer(c.opts.CloseTimeout)
	defer t.Stop()
	select {
	case <-c.done:
		return c.end.Load()
	case <-t.C:
		return abnormal(err)
	}
}

// writeBroke is called by raw when a write to the network failed. What the
// peer has sent before it went away, its close frame above all, is still to be
// read: unless the write stalled, reading has CloseTimeout to find it.
func (c *wsConn) writeBroke(err error, now bool) {
	if now {
		c.finish(&CloseError{Code: CloseAbnormal, Err: err})
		return
	}
	time.AfterFunc(c.opts.CloseTimeout, func() { c.finish(abnormal(err)) })
}

// abnormal is an end by an error of the network.
func abnormal(err error) *CloseError {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // io.EOF is the end of a message
	}
	return &CloseError{Code: CloseAbnormal, Remote: true, Err: err}
}
