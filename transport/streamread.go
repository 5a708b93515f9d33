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
	case <-s.conn.Done():
		return false // cut by this side: whoever wants the rest must not do so
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
