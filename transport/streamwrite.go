package transport

import (
	"errors"
	"net"
	"os"
)

// maxPart is the largest message that a StreamConn sends, in bytes: with its
// frame header a chunk.
const maxPart = chunkSize - 14

// eofFrame ends one direction of a byte stream.
var eofFrame = Encode(EOF{})

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
	n := copy(c.buf[c.to:maxPart], p)
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
			closing := s.closing && !s.abrupt
			s.mu.Unlock()
			if closing {
				s.closeConn()
			}
			return
		}
		s.mu.Unlock()
		wake(s.room)

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

// closeConn closes the Conn behind all that was sent. The peer may have much
// of that before it, and takes the time that it takes to read it: to cut the
// connection after CloseTimeout could make TCP drop the rest.
func (s *StreamConn) closeConn() {
	s.conn.CloseSlowly(CloseNormal, "")
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
	wake(s.room)
}
