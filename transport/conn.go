package transport

import (
	"context"
	"errors"
	"io"
)

// MessageType is the type of a WebSocket message (RFC 6455, section 5.6).
type MessageType uint8

const (
	Text   MessageType = 1
	Binary MessageType = 2
)

// ErrStalled is the cause in the CloseError of a connection that was cut
// because a write made no progress for its WriteTimeout.
var ErrStalled = errors.New("transport: a write made no progress in time")

// Errors of a caller that breaks the contract of Conn. They do not end the
// connection.
var (
	errMessageType  = errors.New("transport: the message type is neither Text nor Binary")
	errUnread       = errors.New("transport: Reader called before the previous message was read to its end")
	errReading      = errors.New("transport: two goroutines read at once")
	errWriterClosed = errors.New("transport: the writer of this message is closed")
)

// Conn is a connection of messages. Reader is for one goroutine at a time;
// everything else may be called concurrently.
//
// Reader, Write and Writer take no context: a context that ends in the middle
// of a message could only cut the connection. A write that makes no progress
// for the WriteTimeout of the connection cuts it, with ErrStalled; a reader is
// unblocked by Close or CloseNow.
//
// A Conn must be read from: pings are answered, and the peer's close is
// noticed, only while a goroutine waits in Reader or reads a message.
//
// A connection that ended releases everything by itself, once Reader has
// returned its error or after Close or CloseNow. How it ended is decided once:
// by the first of the peer's close frame, an error, Close and CloseNow. From
// then on every method reports the same *CloseError. Only a Write that fails
// before Reader has seen the end may tell less: CloseAbnormal and its cause.
type Conn interface {
	// Await waits until Reader has something to do: bytes have come, or the
	// connection has ended. It may return early, and nobody has to call it. It
	// is for the goroutine that calls Reader, and there for its small stack:
	// a goroutine that waits in Await, and never went deeper, costs 2 KiB where
	// one that waits in Reader costs 4.
	Await()
	// Reader waits for the next message. The reader must be read to io.EOF
	// before the next call, which takes the reader back. The error, also that
	// of the reader, is a *CloseError once the connection has ended, however
	// it ended; it never wraps io.EOF, so a connection that was lost is not
	// taken for the end of a message.
	Reader() (MessageType, io.Reader, error)
	// Write sends one message as one frame. p is not retained.
	Write(t MessageType, p []byte) error
	// Writer begins a message that is sent in fragments, one per Write of it;
	// Close of the writer ends the message, and takes the writer back. Other
	// messages wait from the first fragment until then.
	Writer(t MessageType) (io.WriteCloser, error)
	// Ping sends a protocol ping and waits for its pong, or for ctx. It needs
	// a concurrent Reader. It waits for no write in flight, and the end of
	// ctx does not hurt the connection.
	Ping(ctx context.Context) error
	// Close sends a close frame and gives the peer CloseTimeout to answer,
	// then cuts. It returns at once: the rest happens in the background, and
	// Done tells when it is over. Messages that arrive meanwhile may be
	// dropped. A code that cannot be sent is replaced and a reason is cut as
	// CloseCode.Sendable and CutReason say. Only the first Close or CloseNow
	// counts.
	Close(code CloseCode, reason string)
	// CloseSlowly is Close for a peer that may still have much to read before
	// the close frame: it has WriteTimeout. A Close or CloseNow that comes
	// after it leaves CloseTimeout.
	CloseSlowly(code CloseCode, reason string)
	// CloseNow cuts the connection without a close frame. It never blocks.
	CloseNow()
	// Done is closed when the connection is over and its goroutines ended.
	Done() <-chan struct{}
	// Received is how many bytes have come so far, those of control frames
	// too: while it grows, the peer lives. It needs a concurrent Reader.
	Received() int64
	// Writing reports whether a data write is in flight: bytes wait for the
	// peer. Pings and pongs do not count.
	Writing() bool
	// Subprotocol is the negotiated subprotocol, or empty.
	Subprotocol() string
	// RemoteAddr is the peer's network address as text, for logs.
	RemoteAddr() string
}
