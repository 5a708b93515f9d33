package agent

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/dialback/dialback/transport"
)

// bufferSize is that of a copy buffer, in bytes.
const bufferSize = 64 << 10

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// splice copies between a stream and a local connection until both directions
// have ended. They end apart: after a half close the other direction goes on
// for as long as it likes.
type splice struct {
	// Immutable after newSplice.
	stream splicer
	local  io.ReadWriteCloser
	grace  time.Duration // of the service's last bytes once it takes no more
	probe  *probe        // of the stream, while the service takes nothing

	// served is closed when copyToClient has returned.
	served chan struct{}

	// Guarded by mu.
	mu       sync.Mutex
	finished int // directions that have ended in a clean way
}

// splicer is the stream of a splice.
type splicer interface {
	io.ReadWriteCloser
	CloseWrite() error
	// finish ends the stream with 1000, when the client has read all that was
	// written. A Close behind it would hasten that.
	finish()
	CloseWith(code transport.CloseCode, reason string)
	Conn() transport.Conn
	// awaitEnd returns how the stream ended, once it has. No Read may be on.
	awaitEnd() error
}

func newSplice(s splicer, local io.ReadWriteCloser, grace time.Duration) *splice {
	sp := &splice{stream: s, local: local, grace: grace, served: make(chan struct{})}
	sp.probe = newProbe(s.Conn(), sp.abort)
	return sp
}

// run returns when the stream and the local connection are closed.
func (s *splice) run() {
	defer s.probe.stop()
	go s.copyToClient()
	if err := s.copyToService(); err != nil {
		if !cleanEnd(err) {
			s.reset()
		}
	} else {
		// The service takes no more. What it had to say before is still to be
		// read, and tells whether it closed or broke.
		s.finish()
		timeout := time.NewTimer(s.grace)
		select {
		case <-s.served:
		case <-timeout.C:
		}
		timeout.Stop()
	}
	_ = s.local.Close()
	<-s.served
	if !s.whole() {
		_ = s.stream.Close()
	}
}

// copyToService returns nil when the service takes no more, else how the
// stream ended.
func (s *splice) copyToService() error {
	buf := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buf)
	for {
		n, err := s.stream.Read(buf[:])
		if n > 0 {
			s.probe.arm()
			_, err := s.local.Write(buf[:n])
			s.probe.disarm()
			if err != nil {
				return nil
			}
		}
		if err == io.EOF {
			s.closeWrite()
			s.finish()
			return s.stream.awaitEnd()
		}
		if err != nil {
			return err
		}
	}
}

// copyToClient ends when the local connection does.
func (s *splice) copyToClient() {
	defer close(s.served)
	buf := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buf)
	for {
		n, err := s.local.Read(buf[:])
		if n > 0 {
			if _, err := s.stream.Write(buf[:n]); err != nil {
				s.abort()
				return
			}
		}
		if err == io.EOF {
			_ = s.stream.CloseWrite()
			s.finish()
			return
		}
		if err != nil {
			s.stream.CloseWith(transport.CloseInternal, "service connection broke")
			return
		}
	}
}

// abort ends both directions, also a write to a service that takes nothing:
// the stream has broken.
func (s *splice) abort() {
	s.stream.CloseWith(transport.CloseInternal, "")
	s.reset()
}

// finish counts a direction that has ended; after both the stream has.
func (s *splice) finish() {
	s.mu.Lock()
	s.finished++
	both := s.finished == 2
	s.mu.Unlock()
	if both {
		s.stream.finish()
	}
}

// whole reports whether both directions have ended in a clean way.
func (s *splice) whole() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.finished == 2
}

// closeWrite passes a half close on, if the local connection can do that.
func (s *splice) closeWrite() {
	if c, ok := s.local.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
}

// reset closes the local connection so that the service cannot take it for a
// clean end: with a reset, if it is TCP, and without the goodbye of TLS.
func (s *splice) reset() {
	conn := s.local
	if c, ok := conn.(net.Conn); ok {
		conn = transportOf(c)
	}
	if c, ok := conn.(interface{ SetLinger(sec int) error }); ok {
		_ = c.SetLinger(0)
	}
	_ = conn.Close()
}

// cleanEnd reports whether a stream ended in the way that its client wanted.
func cleanEnd(err error) bool {
	var closed *transport.CloseError
	if !errors.As(err, &closed) {
		return false
	}
	return closed.Code == transport.CloseNormal || closed.Remote && closed.Code == transport.CloseNoStatus
}
