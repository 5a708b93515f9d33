package relay

import (
	"io"

	"github.com/dialback/dialback/transport"
)

// aheadRead is a message that is waited for while nobody wants it yet: without a
// read nobody notices that the other side leaves. The message itself waits.
type aheadRead struct {
	done chan struct{} // closed when the rest is set
	t    transport.MessageType
	r    io.Reader
	err  error
}

func newAheadRead() *aheadRead { return &aheadRead{done: make(chan struct{})} }

func (a *aheadRead) settle(t transport.MessageType, r io.Reader, err error) {
	a.t, a.r, a.err = t, r, err
	close(a.done)
}

// take waits for the message.
func (a *aheadRead) take() (transport.MessageType, io.Reader, error) {
	<-a.done
	return a.t, a.r, a.err
}

// readAhead is a client's connection of which the first message is read ahead.
type readAhead struct {
	transport.Conn
	first *aheadRead // owned by the one reader; nil once it was taken
}

func (a *readAhead) Reader() (transport.MessageType, io.Reader, error) {
	if first := a.first; first != nil {
		a.first = nil
		return first.take()
	}
	return a.Conn.Reader()
}
