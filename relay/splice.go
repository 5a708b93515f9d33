package relay

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/dialback/dialback/transport"
)

// spliceChunk is how much of a message is held at a time, in bytes: so much as
// leaves in one write to the network, with the header of its frame.
const spliceChunk = 64<<10 - 32

var spliceBufs = sync.Pool{New: func() any { b := make([]byte, spliceChunk); return &b }}

// splice copies messages both ways between a client and a host until both
// sockets have ended. Each side's close code and reason reach the other.
type splice struct {
	srv    *Server
	st     *stream
	client transport.Conn
	host   transport.Conn
	// bytes: binary messages are bytes, and the only text is stream:eof.
	bytes bool
}

// run copies until the splice is over, or ends it when the stream is aborted.
func (sp *splice) run() {
	stop := context.AfterFunc(sp.st.ctx, func() { sp.abort() })
	defer stop()
	var wg sync.WaitGroup
	wg.Go(sp.copyToHost)
	wg.Go(func() { sp.keepalive(sp.client, sp.host) })
	wg.Go(func() {
		if isOpen(sp.host) {
			sp.keepalive(sp.host, sp.client)
		}
	})
	sp.copyToClient()
	wg.Wait()
}

// abort closes both sides with the reason of the stream's abort, if there is
// one.
func (sp *splice) abort() bool {
	err := sp.st.aborted()
	if err == nil {
		return false
	}
	f := Describe(err)
	sp.client.Close(f.Close, f.Message)
	sp.host.Close(f.Close, f.Message)
	return true
}

func (sp *splice) copyToHost() {
	err := copyMessages(sp.host, sp.client, sp.bytes)
	if sp.abort() {
		return
	}
	if errors.Is(err, errNotBytes) {
		sp.client.Close(transport.CloseUnsupported, errNotBytes.Error())
		sp.host.Close(transport.CloseInternal, "the client broke the protocol")
		return
	}
	code, reason := passOn(err, transport.CloseInternal, "the client's connection was lost")
	sp.host.CloseSlowly(code, reason) // it may have much to read before
}

func (sp *splice) copyToClient() {
	err := copyMessages(sp.client, sp.host, sp.bytes)
	if sp.abort() {
		return
	}
	var failed *openError
	if errors.As(err, &failed) {
		f := sp.srv.report(sp.st.ctx, sp.st.hub.hostID, failed.err)
		sp.client.Close(f.Close, f.Message)
		return
	}
	if errors.Is(err, errNotBytes) {
		sp.host.Close(transport.CloseUnsupported, errNotBytes.Error())
		sp.client.Close(transport.CloseDataAbnormal, "the host broke the protocol")
		return
	}
	code, reason := passOn(err, transport.CloseDataAbnormal, "the host's data socket was lost")
	sp.client.CloseSlowly(code, reason)
}

// passOn is what the other side is told when one side ended with err: the same
// code and reason, or the given ones for an abnormal end. 1000 only ever stands
// for a clean end.
func passOn(err error, abnormal transport.CloseCode, reason string) (transport.CloseCode, string) {
	var ce *transport.CloseError
	if errors.As(err, &ce) && ce.Remote && (ce.Code.Sendable() || ce.Code == transport.CloseNoStatus) {
		return ce.Code, ce.Reason
	}
	return abnormal, reason
}

var errNotBytes = errors.New("only binary messages and stream:eof on a byte stream")

// copyMessages copies messages from src to dst until reading src fails; that is
// the error it returns. Type and boundaries are kept, but for the boundaries of a
// byte stream. When a write fails, dst is over, and its own reader tells src why.
func copyMessages(dst, src transport.Conn, bytes bool) error {
	for {
		t, r, err := src.Reader()
		if err != nil {
			return err
		}
		switch {
		case !bytes:
			err = copyMessage(dst, t, r)
		case t == transport.Binary:
			err = copyBinary(dst, r)
		default:
			err = copyEOF(dst, r)
		}
		var we *writeError
		if errors.As(err, &we) {
			// Nobody takes bytes any more. dst's reader ends src.
			<-dst.Done()
			return we.err
		}
		if err != nil {
			return err
		}
	}
}

// writeError marks an error of the side that is written to.
type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }

// copyMessage copies one message: whole if one Read gets it all, else in a
// fragment for each Read, since what has come must not wait for the rest.
func copyMessage(dst transport.Conn, t transport.MessageType, r io.Reader) error {
	bp := spliceBufs.Get().(*[]byte)
	defer spliceBufs.Put(bp)
	buf := *bp
	n, err := r.Read(buf)
	if err == io.EOF {
		if err := dst.Write(t, buf[:n]); err != nil {
			return &writeError{err}
		}
		return nil
	}
	if err != nil {
		return err
	}
	w, err := dst.Writer(t)
	if err != nil {
		return &writeError{err}
	}
	for {
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return &writeError{werr}
			}
		}
		if err == io.EOF {
			if err := w.Close(); err != nil {
				return &writeError{err}
			}
			return nil
		}
		if err != nil {
			return err // the message stays unfinished: the connection ends
		}
		n, err = r.Read(buf)
	}
}

// copyBinary copies the bytes of one message: those that one Read gets are a
// message.
func copyBinary(dst transport.Conn, r io.Reader) error {
	bp := spliceBufs.Get().(*[]byte)
	defer spliceBufs.Put(bp)
	for buf := *bp; ; {
		n, err := r.Read(buf)
		if n > 0 {
			if werr := dst.Write(transport.Binary, buf[:n]); werr != nil {
				return &writeError{werr}
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// copyEOF passes a half close on; any other text has no place here.
func copyEOF(dst transport.Conn, r io.Reader) error {
	p, err := readAll(io.LimitReader(r, transport.MaxControlFrame), nil)
	if err != nil {
		return err
	}
	if f, err := transport.Decode(p); err != nil || f != (transport.EOF{}) {
		return errNotBytes
	}
	if err := dst.Write(transport.Text, transport.Encode(transport.EOF{})); err != nil {
		return &writeError{err}
	}
	return nil
}

// keepalive is that of a Server for one of the two sockets: while bytes wait for
// the other one, nobody reads.
func (sp *splice) keepalive(conn, other transport.Conn) {
	sp.srv.keepalive(conn, func() bool { return conn.Writing() || other.Writing() })
}

// keepalive pings conn so that idle NAT mappings and load balancers keep it. A
// connection on which nothing has come for StallTimeout, no pong either, is cut;
// but not while bytes wait, on either side: who is blocked in a write does not
// read, and cannot pong. The limit is not shorter because the far end may be
// blocked by something that is not seen from here. waiting says that it is seen.
func (s *Server) keepalive(conn transport.Conn, waiting func() bool) {
	heard, received := time.Now(), conn.Received()
	for {
		t := time.NewTimer(s.cfg.DataPing)
		select {
		case <-conn.Done():
			t.Stop()
			return
		case <-t.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), s.cfg.DataPing)
		err := conn.Ping(ctx)
		cancel()
		switch now := conn.Received(); {
		case err == nil, now != received, waiting():
			heard, received = time.Now(), now
		case time.Since(heard) >= s.cfg.StallTimeout:
			conn.CloseNow()
			return
		}
	}
}
