package transport

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// pipeSlots is how many pieces one direction of a Pipe holds, and pipePiece
// how long a piece is, in bytes: what a socket buffer is to a WebSocket.
const (
	pipeSlots = 64
	pipePiece = 4 << 10
)

// Pipe returns the two ends of an in-memory connection; o, which may be nil,
// holds for both. It keeps the contract of Conn without WebSocket or network:
// for tests, also in synctest bubbles, and for a host in the relay's process.
// It holds 64 pieces each way, of one message each and up to 4 KiB. BufferSize
// has no meaning for it.
func Pipe(o *Options) (Conn, Conn) {
	opts := o.withDefaults()
	ab, ba := make(chan piece, pipeSlots), make(chan piece, pipeSlots)
	a, b := newPipeEnd(opts, ba, ab), newPipeEnd(opts, ab, ba)
	a.peer, b.peer = b, a
	return a, b
}

// piece is what travels through a Pipe: a part of a message, or a close frame.
type piece struct {
	kind  MessageType // zero for a close frame
	data  []byte
	last  bool        // of its message
	close *CloseError // as the receiver shall see it
}

// pipeEnd is one end of a Pipe.
type pipeEnd struct {
	// Immutable after Pipe.
	opts   Options
	peer   *pipeEnd
	in     <-chan piece  // never closed
	out    chan<- piece  // never closed
	ending chan struct{} // closed when end is set
	over   chan struct{} // closed when nothing goes in or out any more
	done   chan struct{} // closed after over, when the last goroutine ends

	// pings carries the pings of the peer to whoever reads here, who answers
	// by closing them. Never closed.
	pings chan chan struct{}

	// message holds a token while a message is being sent, and streaming is
	// set if that is by Writer.
	message   chan struct{}
	streaming atomic.Bool

	reader  pipeReader  // owned by the reading goroutine
	writer  pipeWriter  // owned by the holder of message
	timer   *time.Timer // owned by the holder of message
	writing atomic.Bool
	heard   atomic.Int64 // bytes that have come, and one for each frame

	// end is how the connection ended; nil before. Set once, under mu.
	end atomic.Pointer[CloseError]

	// Guarded by mu.
	mu    sync.Mutex
	cut   *time.Timer // ends shutdown, at cutAt; set with end
	cutAt time.Time
}

func newPipeEnd(opts Options, in <-chan piece, out chan<- piece) *pipeEnd {
	e := &pipeEnd{
		opts:    opts,
		in:      in,
		out:     out,
		ending:  make(chan struct{}),
		over:    make(chan struct{}),
		done:    make(chan struct{}),
		pings:   make(chan chan struct{}),
		message: make(chan struct{}, 1),
	}
	e.reader.e, e.writer.e = e, e
	return e
}

// Await returns at once: Reader waits.
func (e *pipeEnd) Await() {}

func (e *pipeEnd) Reader() (MessageType, io.Reader, error) {
	if end := e.end.Load(); end != nil {
		return 0, nil, end
	}
	r := &e.reader
	if r.open {
		return 0, nil, errUnread
	}
	p, err := e.receive()
	if err != nil {
		return 0, nil, err
	}
	r.open, r.piece, r.total = true, p, 0
	return p.kind, r, nil
}

// receive waits for the next piece of a message.
func (e *pipeEnd) receive() (piece, error) {
	for {
		select {
		case p := <-e.in:
			return e.received(p)
		default:
		}
		select {
		case <-e.ending:
			return piece{}, e.end.Load()
		case p := <-e.in:
			return e.received(p)
		case ping := <-e.pings:
			e.heard.Add(1)
			close(ping)
		case <-e.peer.over:
			// What the peer has sent before comes first.
			select {
			case p := <-e.in:
				return e.received(p)
			default:
				return piece{}, e.finish(abnormal(io.EOF))
			}
		}
	}
}

func (e *pipeEnd) received(p piece) (piece, error) {
	e.heard.Add(1 + int64(len(p.data)))
	if p.close != nil {
		return piece{}, e.finish(p.close)
	}
	return p, nil
}

// pipeReader reads one message; there is one per end.
type pipeReader struct {
	e     *pipeEnd
	open  bool
	piece piece
	total int64 // bytes of the message so far
}

func (r *pipeReader) Read(p []byte) (int, error) {
	if r.open && r.e.end.Load() != nil {
		return 0, r.e.end.Load()
	}
	for r.open {
		if len(r.piece.data) > 0 {
			limit := r.e.opts.ReadLimit
			if limit >= 0 {
				p = p[:min(int64(len(p))-1, limit-r.total)+1]
			}
			n := copy(p, r.piece.data)
			r.piece.data = r.piece.data[n:]
			r.total += int64(n)
			if limit >= 0 && r.total > limit {
				return n - 1, r.e.finish(&CloseError{Code: CloseTooBig, Reason: limitReason(limit)})
			}
			if len(r.piece.data) == 0 && r.piece.last {
				r.open = false
				return n, io.EOF
			}
			return n, nil
		}
		if r.piece.last {
			r.open = false
			break
		}
		var err error
		if r.piece, err = r.e.receive(); err != nil {
			return 0, err
		}
	}
	return 0, io.EOF
}

// limitReason is the reason of a close with CloseTooBig.
func limitReason(limit int64) string {
	return fmt.Sprintf("message larger than %d bytes", limit)
}

func (e *pipeEnd) Write(t MessageType, p []byte) error {
	if err := e.begin(t); err != nil {
		return err
	}
	_, err := e.writer.send(p, true)
	if err == nil {
		e.writer.stop()
	}
	return err
}

func (e *pipeEnd) Writer(t MessageType) (io.WriteCloser, error) {
	if err := e.begin(t); err != nil {
		return nil, err
	}
	e.streaming.Store(true)
	return &e.writer, nil
}

// begin begins a message: writer is the caller's until its stop.
func (e *pipeEnd) begin(t MessageType) error {
	if t != Text && t != Binary {
		return errMessageType
	}
	select {
	case e.message <- struct{}{}:
	case <-e.over:
		return e.end.Load()
	}
	if end := e.end.Load(); end != nil {
		<-e.message
		return end
	}
	e.writer.kind = t
	return nil
}

// pipeWriter writes one message; there is one per end.
type pipeWriter struct {
	e    *pipeEnd
	kind MessageType // zero between messages
}

func (w *pipeWriter) Write(p []byte) (int, error) {
	if w.kind == 0 {
		return 0, errWriterClosed
	}
	return w.send(p, false)
}

func (w *pipeWriter) Close() error {
	if w.kind == 0 {
		return errWriterClosed
	}
	_, err := w.send(nil, true)
	if err == nil {
		w.stop()
	}
	return err
}

// send sends p in pieces. An error ends the message, as last does at the end
// of p for the receiver.
func (w *pipeWriter) send(p []byte, last bool) (int, error) {
	n := 0
	for n < len(p) || last {
		part := p[n:min(len(p), n+pipePiece)]
		next := piece{kind: w.kind, data: bytes.Clone(part), last: last && n+len(part) == len(p)}
		if err := w.e.send(next); err != nil {
			w.stop()
			return n, err
		}
		n += len(part)
		if next.last {
			break
		}
	}
	return n, nil
}

func (w *pipeWriter) stop() {
	w.kind = 0
	w.e.streaming.Store(false)
	<-w.e.message
}

// send puts a piece in, within the WriteTimeout. The caller holds message.
func (e *pipeEnd) send(p piece) error {
	select {
	case <-e.over:
		return e.end.Load()
	case <-e.peer.over:
		return abnormal(io.ErrClosedPipe)
	default:
	}
	select {
	case e.out <- p:
		return nil
	default:
	}
	e.writing.Store(true)
	defer e.writing.Store(false)
	var stalled <-chan time.Time
	if e.opts.WriteTimeout > 0 {
		if e.timer == nil {
			e.timer = time.NewTimer(e.opts.WriteTimeout)
		} else {
			e.timer.Reset(e.opts.WriteTimeout)
		}
		defer e.timer.Stop()
		stalled = e.timer.C
	}
	select {
	case e.out <- p:
		return nil
	case <-e.over:
		return e.end.Load()
	case <-e.peer.over:
		return abnormal(io.ErrClosedPipe)
	case <-stalled:
		return e.finish(&CloseError{Code: CloseAbnormal, Err: ErrStalled})
	}
}

func (e *pipeEnd) Ping(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if end := e.end.Load(); end != nil {
		return end
	}
	pong := make(chan struct{})
	select {
	case e.peer.pings <- pong:
	case <-ctx.Done():
		return ctx.Err()
	case <-e.done:
		return e.end.Load()
	}
	<-pong // whoever took it answers at once
	e.heard.Add(1)
	return nil
}

func (e *pipeEnd) Close(code CloseCode, reason string) {
	e.closeWithin(e.opts.CloseTimeout, code, reason)
}

// CloseSlowly is as that of wsConn.
func (e *pipeEnd) CloseSlowly(code CloseCode, reason string) {
	e.closeWithin(e.opts.slowCloseTimeout(), code, reason)
}

func (e *pipeEnd) closeWithin(timeout time.Duration, code CloseCode, reason string) {
	code, reason = sendable(code, reason)
	e.finishWithin(timeout, &CloseError{Code: code, Reason: reason})
}

func (e *pipeEnd) CloseNow() {
	e.finish(&CloseError{Code: CloseAbnormal})
}

func (e *pipeEnd) Done() <-chan struct{} { return e.done }
func (e *pipeEnd) Received() int64       { return e.heard.Load() }
func (e *pipeEnd) Writing() bool         { return e.writing.Load() }
func (e *pipeEnd) Subprotocol() string   { return "" }
func (e *pipeEnd) RemoteAddr() string    { return "pipe" }

// finish ends this end with end, if nothing has ended it yet, and returns how
// it ended.
func (e *pipeEnd) finish(end *CloseError) *CloseError {
	return e.finishWithin(e.opts.CloseTimeout, end)
}

func (e *pipeEnd) finishWithin(timeout time.Duration, end *CloseError) *CloseError {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.end.Load() == nil {
		e.end.Store(end)
		close(e.ending)
		if end.Remote || end.Code == CloseAbnormal {
			close(e.over)
			close(e.done)
		} else {
			e.cut, e.cutAt = time.NewTimer(timeout), time.Now().Add(timeout)
			go e.shutdown(end)
		}
	} else if soon := e.opts.CloseTimeout; e.cut != nil && time.Until(e.cutAt) > soon {
		e.cut.Reset(soon) // it was to go slowly
		e.cutAt = time.Now().Add(soon)
	}
	return e.end.Load()
}

// shutdown sends the close frame and waits for the peer to have it, until cut
// fires. What arrives meanwhile is dropped.
func (e *pipeEnd) shutdown(end *CloseError) {
	defer e.cut.Stop()
	defer close(e.done)
	defer close(e.over)

	frame := piece{close: &CloseError{Code: end.Code, Reason: end.Reason, Remote: true}}
	message := e.message // nil once the token is ours
	out := (chan<- piece)(nil)
	if e.streaming.Load() { // its writer may never end the message
		message, out = nil, e.out
	}
	for {
		select {
		case message <- struct{}{}:
			message, out = nil, e.out
		case out <- frame:
			out = nil
		case p := <-e.in:
			if p.close != nil {
				return
			}
		case ping := <-e.pings:
			close(ping)
		case <-e.peer.over:
			return
		case <-e.cut.C:
			return
		}
	}
}
