package relay

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/dialback/dialback/transport"
)

// byteStream is the bytes of a tcp data socket, read and written in the
// caller's goroutine: where no deadline is needed it saves the goroutines and
// the copy of a transport.StreamConn. One goroutine reads, one writes.
type byteStream struct {
	conn transport.Conn

	// Owned by the reader.
	msg   io.Reader  // the rest of the current message; nil between messages
	eof   bool       // the host has half closed
	ahead *aheadRead // the next message is read by another goroutine; else nil

	reading atomic.Bool // a Read waits
	broken  atomic.Bool // reading has failed
	got     atomic.Bool // a byte has come since it was last cleared

	wrote atomic.Int64 // bytes, those of a write that waits too
}

// Read returns io.EOF when the host has half closed, or closed with 1000; any
// other end is an error, so that nothing truncated looks complete.
func (b *byteStream) Read(p []byte) (int, error) {
	b.reading.Store(true)
	defer b.reading.Store(false)
	for !b.eof {
		if b.msg == nil || b.ahead != nil {
			t, r, err := b.nextMessage()
			if err == nil && t == transport.Text {
				err = b.readEOF(r)
				r = nil
			}
			if err != nil {
				return 0, b.fail(err)
			}
			b.msg = r
			continue
		}
		n, err := b.msg.Read(p)
		if err == io.EOF {
			b.msg, err = nil, nil
		}
		if err != nil {
			return n, b.fail(err)
		}
		if n > 0 {
			b.got.Store(true)
			return n, nil
		}
	}
	return 0, io.EOF
}

// nextMessage waits for a message, or takes the one that was read ahead.
func (b *byteStream) nextMessage() (transport.MessageType, io.Reader, error) {
	a := b.ahead
	if a == nil {
		return b.conn.Reader()
	}
	t, r, err := a.take() // first: until then the goroutine that reads ahead looks at msg
	b.ahead, b.msg = nil, nil
	return t, r, err
}

// errUnasked: a host sent something that it was not asked for.
var errUnasked = errors.New("relay: bytes that no request asked for")

// readAhead waits for the next message on behalf of a reader that comes later.
func (b *byteStream) readAhead() (transport.MessageType, io.Reader, error) {
	if b.msg != nil { // its end has not been read
		var one [1]byte
		if n, err := b.msg.Read(one[:]); n > 0 || err != io.EOF {
			return 0, nil, errUnasked
		}
	}
	return b.conn.Reader()
}

// fail says how the stream ended.
func (b *byteStream) fail(err error) error {
	b.broken.Store(true)
	var ce *transport.CloseError
	if errors.As(err, &ce) && ce.Remote && ce.Code == transport.CloseNormal {
		b.eof = true
		return io.EOF
	}
	return err
}

// readEOF reads the one text message that a byte stream has.
func (b *byteStream) readEOF(r io.Reader) error {
	p, err := readAll(io.LimitReader(r, transport.MaxControlFrame), nil)
	if err != nil {
		return err
	}
	if f, err := transport.Decode(p); err != nil || f != (transport.EOF{}) {
		b.conn.Close(transport.CloseUnsupported, errNotBytes.Error())
		return fmt.Errorf("relay: %w", errNotBytes)
	}
	b.eof = true
	return nil
}

// Write sends p as one message.
func (b *byteStream) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	b.wrote.Add(int64(len(p)))
	if err := b.conn.Write(transport.Binary, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// CloseWrite half closes.
func (b *byteStream) CloseWrite() error {
	return b.conn.Write(transport.Text, transport.Encode(transport.EOF{}))
}
