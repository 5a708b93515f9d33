package relay

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/dialback/dialback/transport"
)

// Dial opens a byte stream to a raw service of a host, for the embedding
// program: no AuthorizeClient is asked. It returns when the agent has reached
// the service. The connection has CloseWrite and true deadlines; the caller
// closes it. The end of ctx after Dial has returned does not hurt it.
//
// Errors are those of Describe; ErrHostV2 for a host that speaks v2.
func (s *Server) Dial(ctx context.Context, hostID string, t Target) (net.Conn, error) {
	if err := checkHostID(hostID); err != nil {
		return nil, err
	}
	hub := s.registry.acquire(hostID)
	st, err := s.begin(s.ctx, hub, t, Identity{})
	if err != nil {
		s.registry.release(hub)
		return nil, err
	}
	octx, cancel := context.WithCancelCause(st.ctx)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	data, err := s.open(octx, hub, st.id, rawSpec(t))
	if err == nil {
		err = data.await(octx)
	}
	stop()
	cancel(nil)
	if err != nil {
		st.finish()
		s.registry.release(hub)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	st.opened(data.att)
	sc := transport.NewStreamConn(data.conn)
	c := &dialedConn{StreamConn: sc, end: func() {
		st.finish()
		s.registry.release(hub)
	}}
	c.unkeep = s.keepData(data.conn, func() bool { return data.conn.Writing() || sc.Full() })
	if !s.spawn(func() { c.awaitAbort(st) }) {
		c.CloseWith(transport.CloseRestart, "node is restarting")
		return nil, ErrClosed
	}
	return c, nil
}

// dialedConn is a stream whose client is the embedding program.
type dialedConn struct {
	*transport.StreamConn

	once   sync.Once
	end    func()
	unkeep func()
}

// awaitAbort ends the connection when the stream is aborted. It returns when the
// stream is over.
func (c *dialedConn) awaitAbort(st *stream) {
	<-st.ctx.Done()
	if err := st.aborted(); err != nil {
		f := Describe(err)
		c.CloseWith(f.Close, f.Message)
	}
}

// Close ends the stream.
func (c *dialedConn) Close() error {
	c.release()
	return c.StreamConn.Close()
}

// CloseWith ends the stream with a close code of its own.
func (c *dialedConn) CloseWith(code transport.CloseCode, reason string) {
	c.release()
	c.StreamConn.CloseWith(code, reason)
}

func (c *dialedConn) release() {
	c.once.Do(func() {
		c.unkeep()
		c.end()
	})
}

// RoundTripper returns HTTP to a service of a host, for the embedding program:
// no AuthorizeClient is asked, and the request's URL matters for its path and
// query only. Host, Expect and hop-by-hop headers in the request's Header are not
// sent. An upgrade to a v2 host fails with ErrHostV2. It follows the contract of
// http.RoundTripper. A response's body of a 101 is an io.ReadWriteCloser.
func (s *Server) RoundTripper(hostID string, t Target) http.RoundTripper {
	return &roundTripper{s, hostID, t}
}

type roundTripper struct {
	srv    *Server
	hostID string
	target Target
}

func (rt *roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := rt.roundTrip(r)
	if err != nil && r.Body != nil {
		r.Body.Close()
	}
	return resp, err
}

func (rt *roundTripper) roundTrip(r *http.Request) (*http.Response, error) {
	s := rt.srv
	if err := checkHostID(rt.hostID); err != nil {
		return nil, err
	}
	out := s.outboundOf(r)
	if err := out.check(); err != nil {
		return nil, err
	}
	if err := s.limitBody(out); err != nil {
		return nil, err
	}
	hub := s.registry.acquire(rt.hostID)
	st, err := s.begin(r.Context(), hub, rt.target, Identity{})
	if err != nil {
		s.registry.release(hub)
		return nil, err
	}
	end := func() {
		st.finish()
		s.registry.release(hub)
	}
	resp, err := s.exchange(st.ctx, st, rt.target, out)
	if err != nil {
		if cause := context.Cause(r.Context()); cause != nil && st.aborted() == nil {
			err = cause
		} else if cause := out.upload.failed(); cause != nil && err == errClientGone {
			err = cause // there is no client: it is r's own body
		}
		end()
		return nil, err
	}
	resp.Request = r
	if rw, ok := resp.Body.(io.ReadWriteCloser); ok {
		resp.Body = &releasingRW{ReadWriteCloser: rw, end: end}
		return resp, nil
	}
	resp.Body = &releasingBody{ReadCloser: resp.Body, reqBody: r.Body, end: end}
	return resp, nil
}

// outboundOf prepares a request of the embedding program's.
func (s *Server) outboundOf(r *http.Request) *outbound {
	out := newOutbound(r, pathOf(r.URL))
	if out.method == "" {
		out.method = http.MethodGet
	}
	if out.host == "" {
		out.host = r.URL.Host
	}
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		out.length = 0
	case r.ContentLength == 0:
		out.length, out.body = -1, r.Body
	default:
		out.body = r.Body
	}
	return out
}

// releasingBody ends the stream's bookkeeping with the body, and closes the
// request's body as an http.RoundTripper must.
type releasingBody struct {
	io.ReadCloser
	reqBody io.Closer
	once    sync.Once
	end     func()
}

func (b *releasingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.release()
	}
	return n, err
}

func (b *releasingBody) Close() error {
	err := b.ReadCloser.Close()
	b.release()
	return err
}

func (b *releasingBody) release() {
	b.once.Do(func() {
		if b.reqBody != nil {
			b.reqBody.Close()
		}
		b.end()
	})
}

// releasingRW is releasingBody for an upgraded connection.
type releasingRW struct {
	io.ReadWriteCloser
	once sync.Once
	end  func()
}

func (b *releasingRW) Close() error {
	err := b.ReadWriteCloser.Close()
	b.once.Do(b.end)
	return err
}
