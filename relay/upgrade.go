package relay

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/dialback/dialback/transport"
)

// upgrade passes an upgrade on to an agent and, on 101, copies bytes both ways
// without looking at them. Any other answer is an ordinary response. It returns
// an error if nothing has been answered yet.
func (s *Server) upgrade(ctx context.Context, c *toClient, r *http.Request, st *stream, host *httpStream, out *outbound) error {
	if r.ProtoMajor == 1 {
		c.rc.EnableFullDuplex()
	}
	c.informs(r, out)
	resp, err := s.exchangeHTTP(ctx, host, out, provenFor)
	if err != nil {
		defer st.finish()
		out.stopUpload(c.w)
		return err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer st.finish()
		s.answer(c, r, st, out, resp)
		return nil
	}
	body := resp.Body.(*upgradedBody)
	// A client may not use the new protocol before it has sent its request (RFC
	// 9110, section 7.8), and two must not read from it.
	if !out.awaitUpload(ctx, s.cfg.DialTimeout) || !out.sent() {
		defer st.finish()
		body.Close()
		out.stopUpload(c.w)
		return ErrBadAnswer
	}
	// From here on the end of ctx is no end: net/http takes the half close of a
	// client that has its 101 for the end of the request.
	body.stop()
	h := c.w.Header()
	setHeader(h, resp)
	h["Connection"] = []string{"Upgrade"}
	h["Upgrade"] = resp.Header["Upgrade"]
	delete(h, "Content-Length")
	if h["Content-Type"] == nil {
		delete(h, "Content-Type")
	}
	c.bound()
	c.w.WriteHeader(http.StatusSwitchingProtocols)
	client, brw, err := c.rc.Hijack()
	if err != nil {
		resp.Body.Close()
		st.finish()
		return nil
	}
	client.SetReadDeadline(time.Time{})
	client.SetWriteDeadline(time.Now().Add(c.limit)) // Hijack has taken it back
	early, _ := brw.Reader.Peek(brw.Reader.Buffered())
	u := &upgraded{st: st, client: client, early: early, host: body, ended: make(chan struct{})}
	u.limit, u.closing = s.cfg.StallTimeout, s.cfg.CloseTimeout
	u.out = &stallWriter{client, s.cfg.StallTimeout}
	if out.webSocket {
		u.ws = transport.NewPassthrough(u.out)
		u.out = u.ws
	}
	s.registry.acquire(st.hub.hostID)
	run := func() {
		defer s.registry.release(st.hub)
		defer st.finish()
		u.run()
	}
	if brw.Writer.Flush() != nil || !s.spawn(run) {
		client.Close()
		resp.Body.Close()
		st.finish()
		s.registry.release(st.hub)
	}
	return nil
}

// upgraded is a client's connection after a 101, joined with its host's.
type upgraded struct {
	// Immutable after upgrade.
	st      *stream
	client  duplexConn
	out     io.Writer              // to client
	ws      *transport.Passthrough // out, if this is a WebSocket; else nil
	host    *upgradedBody
	limit   time.Duration // StallTimeout
	closing time.Duration // CloseTimeout
	ended   chan struct{} // closed when the first end has done all

	early []byte // what the client sent together with its request; owned by copyToHost

	// Guarded by mu.
	mu     sync.Mutex
	ending bool        // end was called
	last   *time.Timer // ends the stream; nil until one side has ended
}

// duplexConn is what is needed of a hijacked connection.
type duplexConn interface {
	io.ReadWriteCloser
	SetWriteDeadline(time.Time) error
}

// run copies until both directions have ended, or the stream is aborted.
func (u *upgraded) run() {
	stop := context.AfterFunc(u.st.ctx, func() {
		if err := u.st.aborted(); err != nil {
			u.abort(err)
		}
	})
	defer stop()
	var wg sync.WaitGroup
	wg.Go(u.copyToHost)
	u.copyToClient()
	wg.Wait()
	u.over()
	u.host.hs.close() // unless one side has ended it otherwise
	u.client.Close()
}

// abort ends both sides for the reason err. The host's is the first: from then on
// nothing of the client gets there, however long the client takes to be told why.
func (u *upgraded) abort(err error) {
	u.host.Close()
	cut := time.AfterFunc(u.closing, func() { u.client.Close() })
	defer cut.Stop()
	u.end(err)
}

// end ends the client's side for the reason err: with its close code, if this
// is a WebSocket between two frames. A call that is not the first waits for it.
func (u *upgraded) end(err error) {
	if !u.first() {
		<-u.ended
		return
	}
	defer close(u.ended)
	if u.ws != nil {
		f := Describe(err)
		u.ws.Close(f.Close, f.Message)
	}
	u.client.Close()
}

func (u *upgraded) first() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	was := u.ending
	u.ending = true
	return !was
}

// copyToHost ends with a half close: the other direction goes on.
func (u *upgraded) copyToHost() {
	if len(u.early) > 0 {
		if _, err := u.host.Write(u.early); err != nil {
			return
		}
		u.early = nil
	}
	if copyBytes(u.host, u.client) != nil {
		u.host.Close() // the client's connection was lost: so is the host's
		return
	}
	u.host.CloseWrite()
	u.endLater(u.host)
}

// endLater closes the side that goes on alone, unless it ends within StallTimeout.
// A client that has closed altogether looks like one that has half closed until
// something is sent to it; a host that is quiet must not keep its connection. And
// a client whose host is gone may have much to read before it sees that, but need
// not close.
func (u *upgraded) endLater(side io.Closer) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last != nil {
		u.last.Stop()
	}
	u.last = time.AfterFunc(u.limit, func() { side.Close() })
}

// heard is called when bytes of the host have come.
func (u *upgraded) heard() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last != nil {
		u.last.Reset(u.limit)
	}
}

func (u *upgraded) over() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last != nil {
		u.last.Stop()
	}
}

// Read reads from the host.
func (u *upgraded) Read(p []byte) (int, error) {
	n, err := u.host.Read(p)
	u.heard()
	return n, err
}

func (u *upgraded) copyToClient() {
	err := copyBytes(u.out, u)
	if cw, ok := u.client.(interface{ CloseWrite() error }); ok && err == nil {
		cw.CloseWrite()
		if u.host.over() {
			u.endLater(u.client)
		}
		return
	}
	u.end(u.st.why(ErrStreamClosed))
}

// stallWriter bounds each write.
type stallWriter struct {
	duplexConn
	limit time.Duration
}

func (w *stallWriter) Write(p []byte) (int, error) {
	w.SetWriteDeadline(time.Now().Add(w.limit))
	return w.duplexConn.Write(p)
}

// copyBytes copies through a pooled buffer until src ends; nil is a clean end.
func copyBytes(dst io.Writer, src io.Reader) error {
	bp := spliceBufs.Get().(*[]byte)
	defer spliceBufs.Put(bp)
	for {
		n, err := src.Read(*bp)
		if n > 0 {
			if _, werr := dst.Write((*bp)[:n]); werr != nil {
				return werr
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
