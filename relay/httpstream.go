package relay

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/transport"
)

const (
	// provenFor is how long a stream may have been idle and still be taken for
	// alive; proofTimeout is what its proof may take after that.
	provenFor    = 250 * time.Millisecond
	proofTimeout = 2 * time.Second
)

// httpStream is a data socket to an HTTP service of an agent. It carries one
// exchange at a time; between exchanges it is idle in the pool of its hub, and
// only the relay ever closes it then, so that no request crosses with a close.
type httpStream struct {
	byteStream

	// Immutable after newHTTPStream.
	srv     *Server
	hub     *hub
	service string
	ref     store.Ref     // as it was opened; see socket
	via     string        // likewise; see passes
	br      *bufio.Reader // of the byteStream, by way of headReader

	// Owned by the exchange, or by the pool while it is idle.
	headLeft  int       // bytes that the response's header may still take; negative once it was read
	idleSince time.Time // zero while it has never been idle
	timer     *time.Timer

	once sync.Once // the first of leave, cut and close counts
}

func (s *Server) newHTTPStream(data opened, h *hub, service string) *httpStream {
	hs := &httpStream{srv: s, hub: s.registry.acquire(h.hostID), service: service, ref: data.att.Ref(), via: data.via}
	hs.conn = data.conn
	hs.br = bufio.NewReader(headReader{hs})
	if !s.spawn(hs.keep) {
		s.registry.release(h)
	}
	return hs
}

// socket is the control socket that asked for the stream.
func (hs *httpStream) socket() store.Ref {
	if o, ok := hs.conn.(*opening); ok && o.isSettled() {
		return o.att.Ref() // of the dial that was made beside a spare
	}
	return hs.ref
}

// passes returns the node through which the stream passes, or empty.
func (hs *httpStream) passes() string {
	if o, ok := hs.conn.(*opening); ok && o.isSettled() {
		return o.via
	}
	return hs.via
}

// headReader bounds what the header of a response may take.
type headReader struct{ hs *httpStream }

func (r headReader) Read(p []byte) (int, error) {
	hs := r.hs
	if hs.headLeft == 0 {
		return 0, ErrBadAnswer
	}
	if hs.headLeft > 0 {
		p = p[:min(len(p), hs.headLeft)]
	}
	n, err := hs.byteStream.Read(p)
	if hs.headLeft > 0 {
		hs.headLeft -= n
	}
	return n, err
}

// beginExchange makes the stream ready for a response.
func (hs *httpStream) beginExchange() {
	hs.headLeft = hs.srv.cfg.MaxHeader + hs.br.Size()
	hs.got.Store(false)
}

// leave ends the stream before the end of an exchange: the host's request is
// cancelled.
func (hs *httpStream) leave() {
	hs.once.Do(func() { hs.conn.Close(transport.CloseGoingAway, "the client went away") })
}

// cut ends a stream whose peer is dead.
func (hs *httpStream) cut() {
	hs.once.Do(hs.conn.CloseNow)
}

// close ends the stream after a complete exchange, or while it is idle.
func (hs *httpStream) close() {
	hs.once.Do(func() { hs.conn.CloseSlowly(transport.CloseNormal, "") })
}

// keep pings the socket for as long as it lives. Bytes wait while nobody reads.
func (hs *httpStream) keep() {
	defer hs.srv.registry.release(hs.hub)
	if !isOpen(hs.conn) {
		return
	}
	hs.srv.keepalive(hs.conn, func() bool { return hs.conn.Writing() || !hs.reading.Load() })
}

// watch reads ahead on an idle stream: so pongs arrive, and its end is seen. It
// reports whether somebody does.
func (hs *httpStream) watch() bool {
	a := newAheadRead()
	hs.ahead = a
	return hs.srv.spawn(func() {
		t, r, err := hs.readAhead()
		unasked := hs.hub.pool.remove(hs) // before an exchange can go on, and end, and put it back
		a.settle(t, r, err)
		if unasked {
			hs.close()
		}
	})
}

// prove waits for a pong. The stream must be watched.
func (hs *httpStream) prove(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	return hs.conn.Ping(ctx) == nil
}

// guard watches over an exchange that has no answer yet: a peer that is frozen,
// or that a newer socket has replaced, must not keep a client waiting for a
// timer. Whoever has a body to send may be blocked by its service, and cannot
// pong then; it is asked only once the host is known to be replaced.
func (hs *httpStream) guard(ctx context.Context, out *outbound, after time.Duration) (stop func()) {
	g := &guard{}
	g.timer = time.AfterFunc(after, func() {
		hs.srv.spawn(func() {
			if ctx, ok := g.begin(ctx); ok {
				hs.watchOver(ctx, out)
			}
		})
	})
	return g.stop
}

// guard is the watch over one exchange. Most end before it begins.
type guard struct {
	timer *time.Timer // immutable

	// Guarded by mu.
	mu      sync.Mutex
	stopped bool
	cancel  context.CancelFunc // of begin's context; nil before
}

// begin returns a context that stop ends, unless stop was called already.
func (g *guard) begin(ctx context.Context) (context.Context, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return nil, false
	}
	ctx, g.cancel = context.WithCancel(ctx)
	return ctx, true
}

func (g *guard) stop() {
	g.timer.Stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped = true
	if g.cancel != nil {
		g.cancel()
	}
}

// watchOver ends the stream when its peer does not prove that it lives.
func (hs *httpStream) watchOver(ctx context.Context, out *outbound) {
	if !isOpen(hs.conn) {
		return
	}
	for pause := time.Second; ; pause = min(2*pause, hs.srv.cfg.DataPing) {
		alive := true
		switch {
		case out.body == nil:
			alive = hs.prove(ctx)
		case hs.hub.pool.isOld(hs.socket()):
			alive = hs.proveOrMove(ctx)
		default: // not asked for
			pause = time.Second
		}
		if !alive && ctx.Err() == nil && !hs.got.Load() {
			hs.cut()
			return
		}
		if wait(ctx, pause) != nil {
			return
		}
	}
}

// proveOrMove is prove for a request whose body may be what the pong waits
// behind, because its service is slow to read it: the stream is dead after
// DialTimeout in which no pong came and no write was over.
func (hs *httpStream) proveOrMove(ctx context.Context) bool {
	for wrote, since := hs.wrote.Load(), time.Now(); ; {
		asked := time.Now()
		if hs.prove(ctx) {
			return true
		}
		now := hs.wrote.Load()
		switch {
		case time.Since(asked) < proofTimeout: // it has ended
			return false
		case now != wrote:
			wrote, since = now, time.Now()
		case time.Since(since) >= hs.srv.cfg.DialTimeout:
			return false
		}
	}
}

// httpBody is the body of an agent's answer.
type httpBody struct {
	hs   *httpStream
	body io.ReadCloser
	stop func() bool
	done func() // the answer is complete: the stream may be used again

	chunked bool // immutable
	begun   bool // owned by the reader

	finished atomic.Bool // the stream is no longer this body's
}

func (b *httpBody) Read(p []byte) (int, error) {
	b.begun = true
	n, err := b.body.Read(p)
	switch {
	case err == io.EOF:
		// If the context ended just now its func is about to end the stream,
		// which must not be another exchange's by then.
		mine := b.stop()
		if b.finished.CompareAndSwap(false, true) {
			if mine {
				b.done()
			} else {
				b.hs.leave()
			}
		}
	case err != nil:
		b.stop()
		if b.finished.CompareAndSwap(false, true) {
			b.hs.leave()
		}
		err = ErrStreamClosed
	}
	return n, err
}

// ahead reports whether Read returns without waiting for the host. Of a chunked
// body it has taken what it could before it returned: enough may be there at
// the beginning alone.
func (b *httpBody) ahead() bool {
	p, _ := b.hs.br.Peek(b.hs.br.Buffered())
	if !b.chunked {
		return len(p) > 0
	}
	return !b.begun && wholeChunks(p)
}

// wholeChunks reports whether p begins with a chunk and breaks off within none:
// net/http's reader of chunks goes on, and waits, until the last one that has
// begun is whole.
func wholeChunks(p []byte) bool {
	for whole := false; ; whole = true {
		line, rest, found := bytes.Cut(p, []byte("\r\n"))
		if !found {
			return whole
		}
		size, err := strconv.ParseUint(string(line), 16, 31)
		end := int(size) + len("\r\n")
		switch {
		case err != nil, len(rest) < int(size):
			return false
		case size == 0: // and a trailer section
			return bytes.HasPrefix(rest, []byte("\r\n")) || bytes.Contains(rest, []byte("\r\n\r\n"))
		case len(rest) < end:
			return true
		}
		p = rest[end:]
	}
}

// Close ends the exchange; before the end of the answer it cancels the host's.
func (b *httpBody) Close() error {
	b.stop()
	if b.finished.CompareAndSwap(false, true) {
		b.hs.leave()
	}
	return nil
}

// upgradedBody is the byte stream after a 101.
type upgradedBody struct{ *httpBody }

func (b *upgradedBody) Read(p []byte) (int, error)  { return b.hs.br.Read(p) }
func (b *upgradedBody) Write(p []byte) (int, error) { return b.hs.Write(p) }
func (b *upgradedBody) CloseWrite() error           { return b.hs.CloseWrite() }

// over reports, once Read has ended, whether the stream takes nothing any more
// either.
func (b *upgradedBody) over() bool { return b.hs.broken.Load() }
