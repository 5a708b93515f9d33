package relay

import (
	"context"
	"io"

	"github.com/dialback/dialback/transport"
)

// readAhead is a client's connection of which the first message's head is read
// before there is anywhere to send it: without a read nobody notices that the
// client leaves while its host is being dialed. The message itself waits.
type readAhead struct {
	transport.Conn

	first chan struct{} // closed by read when t, r and err are set
	t     transport.MessageType
	r     io.Reader
	err   error
	taken bool // owned by the one reader
}

// read waits for the first message; a client that leaves ends the open.
func (a *readAhead) read(cancel context.CancelCauseFunc) {
	a.t, a.r, a.err = a.Conn.Reader()
	close(a.first)
	if a.err != nil {
		cancel(errClientGone)
	}
}

func (a *readAhead) Reader() (transport.MessageType, io.Reader, error) {
	if !a.taken {
		a.taken = true
		<-a.first
		return a.t, a.r, a.err
	}
	return a.Conn.Reader()
}
