package relay

import (
	"context"
	"io"

	"github.com/dialback/dialback/transport"
)

// isOpen waits for the answer, if conn is an opening, and reports whether there
// is a stream.
func isOpen(conn transport.Conn) bool {
	if o, ok := conn.(*opening); ok {
		<-o.settled
		return o.err == nil
	}
	return true
}

func (o *opening) Reader() (transport.MessageType, io.Reader, error) {
	if <-o.settled; o.err != nil {
		return 0, nil, o.err
	}
	return o.conn.Reader()
}

// Write writes p to the spare, and keeps it, while there is no answer.
func (o *opening) Write(t transport.MessageType, p []byte) error {
	kept := o.keep(t, p)
	if kept && o.onSpare() && o.sp.conn.Write(t, p) == nil {
		return nil
	}
	if <-o.settled; o.err != nil {
		return o.err
	}
	if kept && o.conn != o.sp.conn {
		return nil // it was written again on the dialed socket
	}
	return o.conn.Write(t, p) // on a spare that has ended the error says how
}

// keep keeps a message, if there is room and no answer yet.
func (o *opening) keep(t transport.MessageType, p []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || o.size+len(p) > maxKept {
		return false
	}
	o.kept = append(o.kept, keptMessage{t, append([]byte(nil), p...)})
	o.size += len(p)
	return true
}

func (o *opening) onSpare() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.alone
}

// Writer waits for the answer: fragments are not kept.
func (o *opening) Writer(t transport.MessageType) (io.WriteCloser, error) {
	if <-o.settled; o.err != nil {
		return nil, o.err
	}
	return o.conn.Writer(t)
}

// Ping waits for the answer first.
func (o *opening) Ping(ctx context.Context) error {
	select {
	case <-o.settled:
	case <-ctx.Done():
		return ctx.Err()
	}
	if o.err != nil {
		return o.err
	}
	return o.conn.Ping(ctx)
}

// Close, before the answer, gives the stream up.
func (o *opening) Close(code transport.CloseCode, reason string) {
	if !o.isSettled() {
		o.sp.conn.Close(code, reason)
		o.cancel(errClientGone)
		<-o.settled
	}
	if o.err == nil {
		o.conn.Close(code, reason)
	}
}

// CloseSlowly, before the answer, waits for it behind what was written. An end
// that is not clean gives the stream up.
func (o *opening) CloseSlowly(code transport.CloseCode, reason string) {
	if code != transport.CloseNormal && code != transport.CloseNoStatus {
		o.Close(code, reason)
		return
	}
	o.mu.Lock()
	settled := o.isSettled()
	if !settled {
		o.slowly = &transport.CloseError{Code: code, Reason: reason}
	}
	o.mu.Unlock()
	if settled && o.err == nil {
		o.conn.CloseSlowly(code, reason)
	}
}

// CloseNow, before the answer, gives the stream up.
func (o *opening) CloseNow() {
	if !o.isSettled() {
		o.sp.conn.CloseNow()
		o.cancel(errClientGone)
		<-o.settled
	}
	if o.err == nil {
		o.conn.CloseNow()
	}
}

// any is the socket to ask when it does not matter which.
func (o *opening) any() transport.Conn {
	if o.isSettled() && o.err == nil {
		return o.conn
	}
	return o.sp.conn
}

func (o *opening) Await()                { o.any().Await() }
func (o *opening) Done() <-chan struct{} { return o.any().Done() }
func (o *opening) Received() int64       { return o.any().Received() }
func (o *opening) Writing() bool         { return o.any().Writing() }
func (o *opening) Subprotocol() string   { return o.any().Subprotocol() }
func (o *opening) RemoteAddr() string    { return o.any().RemoteAddr() }
