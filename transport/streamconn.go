package transport

import (
	"net"
	"sync"
	"time"
)

// StreamConn is a byte stream over a Conn: a net.Conn with true deadlines and half
// close. Bytes are binary messages; the text message of EOF ends one direction.
// All methods may be called concurrently.
//
// Reading. Read returns io.EOF when the peer has half closed, or has closed
// with 1000. Any other end is a *CloseError, so that a truncated stream does
// not look complete. A text message other than EOF closes the stream with 1003.
//
// Writing. Write puts bytes into a send buffer of twice 32 KiB, as a
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

	// reading holds a token while a Read is on. arrived wakes the holder when
	// readLoop has something for it, taken wakes readLoop when unread is free;
	// capacity 1, never closed.
	reading chan struct{}
	arrived chan struct{}
	taken   chan struct{}
	rest    *chunk // owned by the holder of reading: what the last Read left

	// writing holds a token while a Write is on. room wakes the holder when
	// sendLoop has taken a chunk or has failed; capacity 1, never closed.
	writing chan struct{}
	room    chan struct{}

	// Guarded by mu. Never held across I/O.
	mu       sync.Mutex
	unread   *chunk // filled by readLoop, taken by Read
	full     bool   // readLoop waits for Read to take it
	readErr  error  // what Read returns behind unread
	unsent   *chunk // filled by Write, taken by sendLoop
	sending  bool   // sendLoop is on
	sendErr  error  // nothing can be sent any more
	halfDone bool   // CloseWrite was called
	eofSent  bool
	closing  bool // Close was called: the Conn closes when unsent is sent
	abrupt   bool // CloseWith was called: it closes the Conn itself
}

var _ net.Conn = (*StreamConn)(nil)

// NewStreamConn makes c a byte stream. The StreamConn owns c, and reads ahead
// from now on: until 32 KiB wait for Read, pings are answered and the end of c is
// noticed. The goroutine that does so ends with c.
func NewStreamConn(c Conn) *StreamConn {
	s := &StreamConn{
		conn:    c,
		closed:  make(chan struct{}),
		reading: make(chan struct{}, 1),
		arrived: make(chan struct{}, 1),
		taken:   make(chan struct{}, 1),
		writing: make(chan struct{}, 1),
		room:    make(chan struct{}, 1),
	}
	go s.readLoop()
	return s
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
	s.mu.Lock()
	s.abrupt = true
	if !s.closing { // first, or what the end of the Conn wakes would say how that ended
		s.closing = true
		close(s.closed)
	}
	s.mu.Unlock()
	s.conn.Close(code, reason)
}

// Full reports whether so much waits for Read that the StreamConn reads nothing
// more: until Read is called no pong can arrive.
func (s *StreamConn) Full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.full
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
