package transport

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

// wsConn is a Conn over a WebSocket. The WebSocket library makes the handshake;
// the frames are ours, see rawConn and frameReader.
type wsConn struct {
	// Immutable after Accept or Dial.
	raw         *rawConn
	request     *request // nil after Accept
	opts        Options
	subprotocol string
	remoteAddr  string
	done        chan struct{}

	// Owned by the holder of the reading side.
	frames frameReader
	reader wsReader

	// reading tells who has the reading side: see takeReading.
	reading atomic.Uint32
	drained chan struct{} // made by startDrain, closed by drain

	// end is how the connection ended; nil before. Set once.
	end atomic.Pointer[CloseError]
	// writing says that writer is in use: the messages in fragments of one
	// goroutine cost no allocation.
	writing atomic.Bool
	writer  wsWriter
	// inFlight counts data writes under way; pings and pongs wait for nobody.
	inFlight atomic.Int32

	// Guarded by mu.
	mu       sync.Mutex
	lastPing uint64
	pings    []pingWait  // pings without a pong, the oldest first
	cutTimer *time.Timer // cuts a connection that closes, at cutAt
	cutAt    time.Time
}

// newWSConn returns a wsConn without a network.
func newWSConn(o *Options) *wsConn {
	c := &wsConn{opts: o.withDefaults(), done: make(chan struct{})}
	c.reader.c = c
	return c
}

// connect puts the network beneath c: nc, of which r yields what was read from
// it already and then the rest. It returns what the WebSocket library is to see.
func (c *wsConn) connect(nc net.Conn, r io.Reader, client bool) *handshakeConn {
	c.raw = newRawConn(nc, r, client, c.opts.WriteTimeout, c)
	c.frames.start(c.raw, c.opts.BufferSize, client, c.control)
	if a := nc.RemoteAddr(); a != nil {
		c.remoteAddr = a.String()
	}
	return &handshakeConn{Conn: nc, raw: c.raw}
}

// handshakeConn is the network as the WebSocket library sees it.
type handshakeConn struct {
	net.Conn
	raw  *rawConn
	over atomic.Bool // the handshake has succeeded: the connection is ours
}

func (c *handshakeConn) Read(p []byte) (int, error)  { return c.raw.Read(p) }
func (c *handshakeConn) Write(p []byte) (int, error) { return c.raw.Write(p) }

// Close cuts the connection of a handshake that has failed.
func (c *handshakeConn) Close() error {
	if !c.over.Load() {
		c.raw.cutOff(net.ErrClosed)
	}
	return nil
}

// release ends the handshake. The library lets go of its buffers.
func (c *handshakeConn) release(ws *websocket.Conn) {
	c.over.Store(true)
	_ = ws.CloseNow()
}

func (c *wsConn) Await() {
	if c.takeReading() != nil {
		return
	}
	defer c.giveReading()
	if !c.reader.open {
		_, _ = c.frames.br.Peek(1) // an error comes again
	}
}

func (c *wsConn) Reader() (MessageType, io.Reader, error) {
	if err := c.takeReading(); err != nil {
		return 0, nil, err
	}
	defer c.giveReading()
	if c.reader.open {
		return 0, nil, errUnread
	}
	opcode, err := c.frames.nextFrame()
	if err != nil {
		return 0, nil, c.readFailed(err)
	}
	c.reader.open, c.reader.total = true, 0
	return MessageType(opcode), &c.reader, nil
}

// control obeys a control frame. The error that it returns ends the connection.
func (c *wsConn) control(opcode byte, payload []byte) error {
	switch opcode {
	case opPing:
		c.raw.sendPong(payload)
	case opPong:
		c.ponged(payload)
	case opClose:
		code, reason, err := parseClose(payload)
		if err != nil {
			return err
		}
		c.raw.sendClose(payload)
		c.frames.closed = true
		if c.request != nil {
			reason = c.request.scrub(reason)
		}
		return &CloseError{Code: code, Reason: reason, Remote: true}
	}
	return nil
}

// wsReader reads one message. There is one per connection, used again and
// again, so that a message costs no allocation.
type wsReader struct {
	c     *wsConn
	open  bool  // the message has not been read to its end
	total int64 // bytes of the message so far
}

func (r *wsReader) Read(p []byte) (int, error) {
	c := r.c
	if err := c.takeReading(); err != nil {
		return 0, err
	}
	defer c.giveReading()
	if !r.open {
		return 0, io.EOF
	}
	f := &c.frames
	for f.left == 0 {
		if f.fin {
			r.open = false
			return 0, io.EOF
		}
		if _, err := f.nextFrame(); err != nil {
			return 0, c.readFailed(err)
		}
	}
	limit := c.opts.ReadLimit
	if limit >= 0 {
		p = p[:min(int64(len(p))-1, limit-r.total)+1]
	}
	n, err := f.payload(p)
	r.total += int64(n)
	switch {
	case limit >= 0 && r.total > limit:
		return n - 1, c.finish(&CloseError{Code: CloseTooBig, Reason: limitReason(limit)})
	case err != nil:
		return n, c.readFailed(err)
	case f.left == 0 && f.fin:
		r.open = false
		return n, io.EOF
	}
	return n, nil
}

func (c *wsConn) Write(t MessageType, p []byte) error {
	if t != Text && t != Binary {
		return errMessageType
	}
	return c.writeFrame(byte(t), true, p)
}

func (c *wsConn) writeFrame(opcode byte, fin bool, p []byte) error {
	if e := c.end.Load(); e != nil {
		return e
	}
	c.inFlight.Add(1)
	err := c.raw.writeFrame(opcode, fin, p)
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
	w := &c.writer
	if !c.writing.CompareAndSwap(false, true) {
		w = new(wsWriter) // another message has not ended
	}
	w.c, w.opcode, w.done = c, byte(t), false
	return w, nil
}

// wsWriter writes one message in fragments. The message begins with the first.
type wsWriter struct {
	c      *wsConn
	opcode byte // of the next frame
	done   bool
}

func (w *wsWriter) Write(p []byte) (int, error) {
	if w.done {
		return 0, errWriterClosed
	}
	if len(p) == 0 {
		return 0, nil
	}
	if err := w.write(false, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (w *wsWriter) Close() error {
	if w.done {
		return errWriterClosed
	}
	w.done = true
	err := w.write(true, nil)
	if w == &w.c.writer {
		w.c.writing.Store(false)
	}
	return err
}

func (w *wsWriter) write(fin bool, p []byte) error {
	opcode := w.opcode
	w.opcode = opContinuation
	return w.c.writeFrame(opcode, fin, p)
}

func (c *wsConn) Done() <-chan struct{} { return c.done }
func (c *wsConn) Received() int64       { return c.raw.received.Load() }
func (c *wsConn) Writing() bool         { return c.inFlight.Load() > 0 }
func (c *wsConn) Subprotocol() string   { return c.subprotocol }
func (c *wsConn) RemoteAddr() string    { return c.remoteAddr }
