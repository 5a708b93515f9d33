package transport

import (
	"errors"
	"io"
	"net"
	"os"
)

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
	for s.rest == nil {
		var err error
		if s.rest, err = s.takeUnread(); err != nil {
			return 0, err
		}
		if s.rest != nil {
			break
		}
		select {
		case <-s.arrived:
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

// takeUnread returns what has come; or how the stream has ended, behind that.
func (s *StreamConn) takeUnread() (*chunk, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.unread
	if c == nil {
		return nil, s.readErr
	}
	s.unread = nil
	wake(s.taken)
	return c, nil
}

// wake has whoever waits for c, or will, look again.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it will already
	}
}

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
		s.deliver(c)
		if err != nil {
			return // the end of the message; else the next Reader says what it is
		}
	}
}

// deliver puts what is in c behind what Read has not taken yet, and waits for
// room there. It takes c over.
func (s *StreamConn) deliver(c *chunk) {
	for !s.append(c) {
		select {
		case <-s.taken:
		case <-s.closed:
			return
		case <-s.conn.Done(): // cut by this side: whoever wants the rest must not do so
			return
		}
	}
}

// append reports whether all of c went into unread. If it did not, readLoop
// waits from now on.
func (s *StreamConn) append(c *chunk) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = false
	switch u := s.unread; {
	case c.from == c.to || isClosed(s.closed):
		chunks.Put(c)
		return true
	case u == nil:
		s.unread = c
	default:
		n := copy(u.buf[u.to:], c.buf[c.from:c.to])
		u.to += n
		c.from += n
		if s.full = c.from < c.to; !s.full {
			chunks.Put(c)
		}
	}
	wake(s.arrived)
	return !s.full
}

// stopReceiving has Read return err once it has taken what came before.
func (s *StreamConn) stopReceiving(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readErr = err
	wake(s.arrived)
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
