package agent

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/dialback/dialback/transport"
)

// StreamInfo says what a stream is.
type StreamInfo struct {
	ID      string // the relay's name for the stream; empty from old relays
	Service string // the service that the client asked for
}

// Stream is one stream of a client: a net.Conn with half close. The embedded
// StreamConn has the details of reading, writing and deadlines. Whoever got it
// must Close it, also after an error.
type Stream struct {
	*transport.StreamConn
	socket *dataSocket

	// For HTTP only.
	cancel   context.CancelFunc // ends the context of its requests; set before the first one
	hijacked atomic.Bool        // a handler has taken it over
}

func newStream(s *dataSocket) *Stream {
	return &Stream{StreamConn: transport.NewStreamConn(s.conn), socket: s}
}

// Info says what the stream is.
func (s *Stream) Info() StreamInfo { return s.socket.info }

// Close ends the stream with 1000, a clean end, after what was written.
func (s *Stream) Close() error {
	err := s.StreamConn.Close()
	s.socket.release()
	return err
}

// CloseWith ends the stream with that code and reason at once: for an end that
// is not clean.
func (s *Stream) CloseWith(code transport.CloseCode, reason string) {
	s.StreamConn.CloseWith(code, reason)
	s.socket.release()
}

type streamInfoKey struct{}

// StreamInfoFrom returns the stream that ctx belongs to: that of a Raw handler,
// or of a request that HTTP serves. Requests on one stream may be of different
// clients.
func StreamInfoFrom(ctx context.Context) (StreamInfo, bool) {
	switch s := ctx.Value(streamInfoKey{}).(type) {
	case StreamInfo:
		return s, true
	case *Stream:
		return s.Info(), true
	}
	return StreamInfo{}, false
}

// dataSocket is the connection of one stream, as the agent keeps account of
// it: from dial-back until it is over.
type dataSocket struct {
	// Immutable.
	conn transport.Conn
	r    *runner

	// Written under r.mu before the stream begins, immutable then.
	info  StreamInfo
	begun bool // it is a stream's, not a spare

	once sync.Once // release
}

// closeWith ends the stream with that code and reason.
func (s *dataSocket) closeWith(code transport.CloseCode, reason string) {
	s.conn.Close(code, reason)
	s.release()
}

// release says that the stream has been closed by this side. Its close
// handshake may still be on.
func (s *dataSocket) release() { s.once.Do(s.released) }

func (s *dataSocket) released() { go s.r.awaitClosed(s) }

// byteStream is a data socket as a stream of bytes, without the read-ahead,
// the buffers and the deadlines of a StreamConn: a splice has its own buffers,
// and needs no more. Reads are for one goroutine at a time.
type byteStream struct {
	*dataSocket
	message io.Reader // the rest of the current one; nil between messages
}

// Read returns io.EOF when the client has half closed, or closed with 1000.
func (s *byteStream) Read(p []byte) (int, error) {
	for {
		if s.message == nil {
			t, r, err := s.conn.Reader()
			if err != nil {
				return 0, endOf(err)
			}
			if t == transport.Text {
				return 0, s.text(r)
			}
			s.message = r
		}
		n, err := s.message.Read(p)
		if err == io.EOF {
			s.message = nil
			err = nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// text reads a text message: only a half close may be one.
func (s *byteStream) text(r io.Reader) error {
	p, err := io.ReadAll(io.LimitReader(r, transport.MaxControlFrame))
	if err != nil {
		return err
	}
	if f, err := transport.Decode(p); err == nil {
		if _, ok := f.(transport.EOF); ok {
			return io.EOF
		}
	}
	s.closeWith(transport.CloseUnsupported, "a text message in a byte stream")
	return errors.New("agent: a text message in a byte stream")
}

// Write sends p as one message.
func (s *byteStream) Write(p []byte) (int, error) {
	if err := s.conn.Write(transport.Binary, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// CloseWrite half-closes the stream.
func (s *byteStream) CloseWrite() error {
	return s.conn.Write(transport.Text, transport.Encode(transport.EOF{}))
}

// Close ends the stream with 1000.
func (s *byteStream) Close() error {
	s.closeWith(transport.CloseNormal, "")
	return nil
}

// finish ends the stream with 1000, behind what was written: a client that
// reads slowly has StallTimeout for that.
func (s *byteStream) finish() {
	s.conn.CloseSlowly(transport.CloseNormal, "")
	s.release()
}

// CloseWith ends the stream with that code and reason.
func (s *byteStream) CloseWith(code transport.CloseCode, reason string) { s.closeWith(code, reason) }

// Conn is the data socket.
func (s *byteStream) Conn() transport.Conn { return s.conn }

// awaitEnd reads on after the client's half close, since only a reader learns
// of the end.
func (s *byteStream) awaitEnd() error {
	for {
		_, message, err := s.conn.Reader()
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, message)
	}
}

// endOf makes a clean close of the client the end of its bytes.
func endOf(err error) error {
	var closed *transport.CloseError
	if errors.As(err, &closed) && closed.Remote && closed.Code == transport.CloseNormal {
		return io.EOF
	}
	return err
}
