package transporttest

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/dialback/dialback/transport"
)

// message is what readMessage got.
type message struct {
	kind transport.MessageType
	data []byte
}

// readMessage reads a whole message.
func readMessage(c transport.Conn) (message, error) {
	kind, r, err := c.Reader()
	if err != nil {
		return message{}, err
	}
	data, err := io.ReadAll(r)
	return message{kind, data}, err
}

// wantMessage reads a message and compares it.
func wantMessage(t *testing.T, c transport.Conn, kind transport.MessageType, data []byte) {
	t.Helper()
	m, err := readMessage(c)
	if err != nil {
		t.Fatalf("reading a message: %v", err)
	}
	if m.kind != kind || !bytes.Equal(m.data, data) {
		t.Fatalf("got message of type %d with %d bytes %.40q, want type %d with %d bytes %.40q",
			m.kind, len(m.data), m.data, kind, len(data), data)
	}
}

// async is a call that goes on in the background.
type async[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// start calls f in the background.
func start[T any](f func() (T, error)) *async[T] {
	a := &async[T]{done: make(chan struct{})}
	go a.run(f)
	return a
}

func (a *async[T]) run(f func() (T, error)) {
	defer close(a.done)
	a.value, a.err = f()
}

// wait returns what the call returned.
func (a *async[T]) wait() (T, error) {
	<-a.done
	return a.value, a.err
}

// returned reports whether the call is over.
func (a *async[T]) returned() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// startRead reads c until it ends, and drops the messages. Its value is how
// many there were.
func startRead(c transport.Conn) *async[int] {
	return start(func() (int, error) {
		for n := 0; ; n++ {
			if _, err := readMessage(c); err != nil {
				return n, err
			}
		}
	})
}

// bigMessage is longer than what a connection holds on its way.
const bigMessage = 16 << 20

// startBlocked begins a Write that cannot end before the peer reads.
func startBlocked(c transport.Conn) *async[struct{}] {
	return start(func() (struct{}, error) {
		return struct{}{}, c.Write(transport.Binary, make([]byte, bigMessage))
	})
}

// wantEnd checks that err is a CloseError with that code, reason and side.
func wantEnd(t *testing.T, who string, err error, code transport.CloseCode, reason string, remote bool) {
	t.Helper()
	var e *transport.CloseError
	if !errors.As(err, &e) {
		t.Errorf("%s: error %v (%T) is no *CloseError", who, err, err)
		return
	}
	if e.Code != code || e.Reason != reason || e.Remote != remote {
		t.Errorf("%s: ended with code %d, reason %q, remote %v; want %d, %q, %v",
			who, e.Code, e.Reason, e.Remote, code, reason, remote)
	}
	if errors.Is(err, io.EOF) {
		t.Errorf("%s: the error wraps io.EOF, which is the end of a message", who)
	}
}

// done reports whether c is over.
func done(c transport.Conn) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}
