package transport

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// chunkSize is the size of the buffers of a StreamConn, and of the largest
// message that it sends, in bytes.
const chunkSize = 32 << 10

// chunk is a buffer on its way between a StreamConn and its Conn.
type chunk struct {
	buf  [chunkSize]byte
	from int // first byte that is not read
	to   int
}

var chunks = sync.Pool{New: func() any { return new(chunk) }}

func newChunk() *chunk {
	c := chunks.Get().(*chunk)
	c.from, c.to = 0, 0
	return c
}

// eofFrame ends one direction of a byte stream.
var eofFrame = Encode(EOF{})

// StreamConn is a byte stream over a Conn: a net.Conn with true deadlines and half
// close. Bytes are binary messages; the text message of EOF ends one direction.
// All methods may be called concurrently.
//
// Reading. Read returns io.EOF when the peer has half closed, or has closed
// with 1000. Any other end is a *CloseError, so that a truncated stream does
// not look complete. A text message other than EOF closes the stream with 1003.
//
// Writing. Write puts bytes into a send buffer of two chunks of 32 KiB, as a
// TCP socket does, and returns once the last of them is in there; a goroutine
// that lives while there is something to send sends them. A write deadline
// ends the wait for room: Write returns how many bytes it has put in, those
// are sent, and the stream stays usable. An error of sending is returned by
// the Write after it. A peer that does not read at all is the WriteTimeout of
// the Conn.
//
// An idle StreamConn holds no buffer.
type StreamConn struct {
	// Immutable after NewStreamConn.
	conn   Conn
	closed chan struct{} // closed by Close and CloseWith

	readDeadline  deadline
	writeDeadline deadline

	// reading holds a token while a Read is on. received carries what readLoop
	// has read to it, unbuffered: what the reader does not take the peer
	// cannot send. readLoop closes it, after it has set readErr.
	reading  chan struct{}
	received chan *chunk
	readErr  error
	rest     *chunk // owned by the holder of reading: what the last Read left

	// writing holds a token while a Write is on. room wakes the holder when
	// sendLoop has taken a chunk or has failed; capacity 1, never closed.
	writing chan struct{}
	room    chan struct{}

	// Guarded by mu. Never held across I/O.
	mu       sync.Mutex
	unsent   *chunk // filled by Write, taken by sendLoop
	sending  bool   // sendLoop is on
	sendErr  error  // nothing can be sent any more
	halfDone bool   // CloseWrite was called
	eofSent  bool
	closing  bool // Close was called: the Conn closes when unsent is sent
}

var _ net.Conn = (*StreamConn)(nil)

// NewStreamConn makes c a byte stream. The StreamConn owns c, and reads ahead
// from now on: one message, or 32 KiB of one, waits for Read. The goroutine
// that does so ends with c.
func NewStreamConn(c Conn) *StreamConn {
	s := &StreamConn{
		conn:     c,
		closed:   make(chan struct{}),
		reading:  make(chan struct{}, 1),
		received: make(chan *chunk),
		writing:  make(chan struct{}, 1),
		room:     make(chan struct{}, 1),
	}
	go s.readLoop()
	return s
}

// Read implements net.Conn.
func (s *StreamConn) Read(p []byte) (int, error) {
	passed := s.readDeadline.wait()
	switch {
	case isClosed(s.closed):
		return 0, net.ErrClosed
	case isClosed(passed):
		return 0, os.ErrDeadlineExceeded
	}
	select {
	case s.reading <- struct{}{}:
	case <-s.closed:
		return 0, net.ErrClosed
	case <-passed:
		return 0, os.ErrDeadlineExceeded
	}
	defer func() { <-s.reading }()
	if len(p) == 0 {
		return 0, nil
	}
	if s.rest == nil {
		select {
		case c, ok := <-s.received:
			if !ok {
				return 0, s.readErr
			}
			s.rest = c
		case <-s.closed:
			return 0, net.ErrClosed
		case <-passed:
			return 0, os.ErrDeadlineExceeded
		}
	}
	c := s.rest
	n := copy(p, c.buf[c.from:c.to])
	c.from += n
	if c.from == c.to {
		s.rest = nil
		chunks.Put(c)
	}
	return n, nil
}

// Write implements net.Conn.
func (s *StreamConn) Write(p []byte) (int, error) {
	passed := s.writeDeadline.wait()
	switch {
	case isClosed(s.closed):
		return 0, net.ErrClosed
	case isClosed(passed):
		return 0, os.ErrDeadlineExceeded
	}
	select {
	case s.writing <- struct{}{}:
	case <-s.closed:
		return 0, net.ErrClosed
	case <-passed:
		return 0, os.ErrDeadlineExceeded
	}
	defer func() { <-s.writing }()
	n := 0
	for {
		k, err := s.put(p[n:])
		n += k
		if n == len(p) || err != nil {
			return n, err
		}
		select {
		case <-s.room:
		case <-s.closed:
			return n, net.ErrClosed
		case <-passed:
			return n, os.ErrDeadlineExceeded
		}
	}
}

// put appends what fits of p to the send buffer.
func (s *StreamConn) put(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing:
		return 0, net.ErrClosed
	case s.sendErr != nil:
		return 0, s.sendErr
	case s.halfDone:
		return 0, errHalfClosed
	case len(p) == 0:
		return 0, nil
	}
	if s.unsent == nil {
		s.unsent = newChunk()
	}
	c := s.unsent
	n := copy(c.buf[c.to:], p)
	c.to += n
	s.wakeLocked()
	return n, nil
}

var errHalfClosed = errors.New("transport: write after CloseWrite")

// wakeLocked starts sendLoop if it is not on.
func (s *StreamConn) wakeLocked() {
	if !s.sending {
		s.sending = true
		go s.sendLoop()
	}
}

// sendLoop sends what is unsent, and ends when there is nothing left.
func (s *StreamConn) sendLoop() {
	for {
		s.mu.Lock()
		c := s.unsent
		s.unsent = nil
		eof := c == nil && s.halfDone && !s.eofSent && s.sendErr == nil
		if eof {
			s.eofSent = true
		}
		if c == nil && !eof {
			s.sending = false
			closing := s.closing
			s.mu.Unlock()
			if closing {
				s.conn.Close(CloseNormal, "")
			}
			return
		}
		s.mu.Unlock()
		s.wakeWriter()

		var err error
		if eof {
			err = s.conn.Write(Text, eofFrame)
		} else {
			err = s.conn.Write(Binary, c.buf[:c.to])
			chunks.Put(c)
		}
		if err != nil {
			s.stopSending(err)
		}
	}
}

// stopSending makes every Write fail with err.
func (s *StreamConn) stopSending(err error) {
	s.mu.Lock()
	if s.sendErr == nil {
		s.sendErr = err
	}
	c := s.unsent
	s.unsent = nil
	s.mu.Unlock()
	if c != nil {
		chunks.Put(c)
	}
	s.wakeWriter()
}

func (s *StreamConn) wakeWriter() {
	select {
	case s.room <- struct{}{}:
	default:
	}
}

// CloseWrite sends EOF after what is unsent: the peer's Read gets io.EOF, our
// Read goes on. It does not wait. Later writes fail.
func (s *StreamConn) CloseWrite() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing:
		return net.ErrClosed
	case s.sendErr != nil:
		return s.sendErr
	case s.halfDone:
		return nil
	}
	s.halfDone = true
	s.wakeLocked()
	return nil
}

// Close ends the stream with 1000. Blocked calls return net.ErrClosed. It
// waits for nothing: what was written is sent in the background before the
// close frame.
func (s *StreamConn) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return nil
	}
	s.closing = true
	close(s.closed)
	s.wakeLocked()
	return nil
}

// CloseWith ends the stream with that code at once: for an end that is not
// clean. What is unsent is dropped, also that of an earlier Close. Blocked
// calls return net.ErrClosed.
func (s *StreamConn) CloseWith(code CloseCode, reason string) {
	s.conn.Close(code, reason)
	_ = s.Close()
}

// Conn is the connection underneath.
func (s *StreamConn) Conn() Conn { return s.conn }

// LocalAddr implements net.Conn. The address says nothing: a Conn does not
// know it.
func (s *StreamConn) LocalAddr() net.Addr { return streamAddr("local") }

// RemoteAddr is the RemoteAddr of the Conn.
func (s *StreamConn) RemoteAddr() net.Addr { return streamAddr(s.conn.RemoteAddr()) }

// SetDeadline implements net.Conn.
func (s *StreamConn) SetDeadline(t time.Time) error {
	if isClosed(s.closed) {
		return net.ErrClosed
	}
	s.readDeadline.set(t)
	s.writeDeadline.set(t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (s *StreamConn) SetReadDeadline(t time.Time) error {
	if isClosed(s.closed) {
		return net.ErrClosed
	}
	s.readDeadline.set(t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (s *StreamConn) SetWriteDeadline(t time.Time) error {
	if isClosed(s.closed) {
		return net.ErrClosed
	}
	s.writeDeadline.set(t)
	return nil
}

// streamAddr is the address of a StreamConn.
type streamAddr string

func (streamAddr) Network() string  { return "websocket" }
func (a streamAddr) String() string { return string(a) }

// readLoop reads ahead for Read until the Conn ends.
func (s *StreamConn) readLoop() {
	eof := false // the peer has half closed
	for {
		t, r, err := s.conn.Reader()
		switch {
		case err != nil:
			if !eof {
				s.stopReceiving(readError(err))
			}
			s.stopSending(err)
			return
		case eof:
			s.conn.Close(CloseProtocolError, "a message after stream:eof")
		case t == Binary:
			s.receive(r)
		case isEOF(r):
			eof = true
			s.stopReceiving(io.EOF)
		default:
			s.conn.Close(CloseUnsupported, "a text message in a byte stream")
		}
	}
}

// receive hands the bytes of a message to Read. After Close it drops them, so
// that a peer that only sends comes to see the close.
func (s *StreamConn) receive(r io.Reader) {
	for {
		c := newChunk()
		var err error
		c.to, err = r.Read(c.buf[:])
		if c.to == 0 || !s.deliver(c) {
			chunks.Put(c)
		}
		if err != nil {
			return // the end of the message; else the next Reader says what it is
		}
	}
}

func (s *StreamConn) deliver(c *chunk) bool {
	select {
	case s.received <- c:
		return true
	case <-s.closed:
		return false
	}
}

// stopReceiving makes every later Read fail with err.
func (s *StreamConn) stopReceiving(err error) {
	s.readErr = err
	close(s.received)
}

// readError is what Read says when the Conn ended with err.
func readError(err error) error {
	var ce *CloseError
	if errors.As(err, &ce) && ce.Remote && ce.Code == CloseNormal {
		return io.EOF
	}
	return err
}

// isEOF reports whether a text message is EOF. It reads the message.
func isEOF(r io.Reader) bool {
	p, err := io.ReadAll(io.LimitReader(r, MaxControlFrame))
	if err != nil {
		return false
	}
	f, err := Decode(p)
	_, ok := f.(EOF)
	return ok && err == nil
}
