package relay

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/dialback/dialback/transport"
)

// v2Chunk is the largest body message that a v2 host is sent, by the wire.
const v2Chunk = 256 << 10

var v2Bufs = sync.Pool{New: func() any { b := make([]byte, v2Chunk); return &b }}

// exchangeV2 speaks the exchange of v2 hosts on a data socket: both directions
// stream as they come.
func (s *Server) exchangeV2(ctx context.Context, conn transport.Conn, out *outbound) (*http.Response, error) {
	path := out.path
	if out.query != "" {
		path += "?" + out.query
	}
	var answer atomic.Pointer[v2Body]
	unkeep := s.keepData(conn, func() bool {
		b := answer.Load()
		return conn.Writing() || b != nil && b.idle()
	})
	stop := context.AfterFunc(ctx, conn.CloseNow)
	timer := &headerTimer{limit: s.cfg.ResponseHeaderTimeout, cut: conn.CloseNow}
	fail := func(err error) (*http.Response, error) {
		timer.stop()
		stop()
		unkeep()
		conn.CloseNow()
		return nil, whyNoAnswer(ctx, out, timer, err)
	}
	head := transport.Encode(transport.HTTPRequest{Method: out.method, Path: path, Headers: flatHeader(out.header)})
	if len(head) > transport.MaxControlFrame {
		return fail(badRequest("the request's header is larger than 64 KiB"))
	}
	if err := conn.Write(transport.Text, head); err != nil {
		return fail(ErrStreamClosed)
	}
	if out.body == nil {
		if err := conn.Write(transport.Text, transport.Encode(transport.HTTPEnd{})); err != nil {
			return fail(ErrStreamClosed)
		}
		timer.start()
	} else {
		out.readBody()
		out.upload.done = make(chan struct{})
		send := func() {
			defer close(out.upload.done)
			if uploadV2(conn, out) {
				timer.start()
			}
		}
		if !s.spawn(send) {
			close(out.upload.done)
			return fail(ErrStreamClosed) // the head is on its way
		}
	}
	for {
		f, body, err := nextV2(conn)
		if err != nil {
			return fail(ErrStreamClosed)
		}
		resp, ok := f.(transport.HTTPResponse)
		if !ok {
			if body != nil { // a body before its head
				return fail(ErrBadAnswer)
			}
			continue
		}
		if resp.Status < 200 { // which announce an answer, and are none
			return fail(ErrBadAnswer)
		}
		timer.stop()
		b := &v2Body{conn: conn, stop: stop, unkeep: unkeep}
		answer.Store(b)
		return b.response(out, resp), nil
	}
}

// response makes a response of the head of a v2 host's answer.
func (b *v2Body) response(out *outbound, f transport.HTTPResponse) *http.Response {
	resp := &http.Response{StatusCode: f.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: make(http.Header, len(f.Headers)), ContentLength: -1, Body: b}
	for k, v := range f.Headers {
		resp.Header[textproto.CanonicalMIMEHeaderKey(k)] = []string{v}
	}
	if out.method == http.MethodHead || f.Status == http.StatusNoContent || f.Status == http.StatusNotModified {
		b.finish(nil)
		resp.Body = http.NoBody
		resp.ContentLength = 0
	}
	return resp
}

// uploadV2 sends the body and its end. A client that aborts gets the data
// socket cut, never an http:end: a truncated POST must not run.
func uploadV2(conn transport.Conn, out *outbound) bool {
	bp := v2Bufs.Get().(*[]byte)
	defer v2Bufs.Put(bp)
	for {
		n, err := out.body.Read(*bp)
		if err == io.EOF {
			out.upload.ended()
		}
		if n > 0 {
			if conn.Write(transport.Binary, (*bp)[:n]) != nil {
				return false
			}
		}
		if err == io.EOF {
			return conn.Write(transport.Text, transport.Encode(transport.HTTPEnd{})) == nil
		}
		if err != nil {
			out.upload.fail(err)
			conn.CloseNow()
			return false
		}
	}
}

// nextV2 reads one message: a frame that is known, or the reader of a body
// message, or neither for a text that is to be ignored.
func nextV2(conn transport.Conn) (transport.Frame, io.Reader, error) {
	t, r, err := conn.Reader()
	if err != nil {
		return nil, nil, err
	}
	if t == transport.Binary {
		return nil, r, nil
	}
	p, err := readAll(io.LimitReader(r, transport.MaxControlFrame+1), nil)
	if err != nil {
		return nil, nil, err
	}
	if len(p) > transport.MaxControlFrame {
		return nil, nil, transport.ErrUnknownFrame
	}
	f, err := transport.Decode(p)
	if err != nil {
		return nil, nil, nil
	}
	return f, nil, nil
}

// v2Body is the body of a v2 host's answer. Read is for one goroutine.
type v2Body struct {
	conn   transport.Conn
	stop   func() bool
	unkeep func()

	msg io.Reader // the rest of the current message
	err error     // how the body ended; guarded by mu for writing

	mu      sync.Mutex
	reading bool
	done    bool
}

func (b *v2Body) Read(p []byte) (int, error) {
	b.setReading(true)
	defer b.setReading(false)
	for b.err == nil {
		if b.msg != nil {
			n, err := b.msg.Read(p)
			if err == io.EOF {
				b.msg, err = nil, nil
			}
			if err != nil {
				b.finish(ErrStreamClosed)
				return n, b.err
			}
			if n > 0 {
				return n, nil
			}
			continue
		}
		f, msg, err := nextV2(b.conn)
		switch {
		case err != nil:
			b.finish(ErrStreamClosed)
		case f == transport.HTTPEnd{}:
			b.finish(io.EOF)
		default:
			b.msg = msg
		}
	}
	return 0, b.err
}

func (b *v2Body) setReading(v bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = v
}

// idle reports whether nobody reads: bytes may wait then.
func (b *v2Body) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.reading
}

// finish ends the socket: cleanly if the answer is complete.
func (b *v2Body) finish(err error) {
	b.err = err
	b.mu.Lock()
	done := b.done
	b.done = true
	b.mu.Unlock()
	if done {
		return
	}
	b.stop()
	b.unkeep()
	if errors.Is(err, ErrStreamClosed) {
		b.conn.CloseNow()
		return
	}
	b.conn.Close(transport.CloseNormal, "")
}

// Close ends the exchange; before the end of the answer it cuts the socket.
func (b *v2Body) Close() error {
	b.mu.Lock()
	done := b.done
	b.done = true
	b.mu.Unlock()
	if !done {
		b.stop()
		b.unkeep()
		b.conn.CloseNow()
	}
	return nil
}

// flatHeader is h as a flat map of strings: repeated headers are joined.
func flatHeader(h http.Header) map[string]string {
	flat := make(map[string]string, len(h))
	for k, vs := range h {
		if k == "Te" {
			continue
		}
		sep := ", "
		if k == "Cookie" {
			sep = "; "
		}
		flat[strings.ToLower(k)] = strings.Join(vs, sep)
	}
	return flat
}
