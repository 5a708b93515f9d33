package relay

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/dialback/dialback/transport"
)

// exchangeHTTP speaks HTTP/1.1 (RFC 9112) on a data socket of an agent: one
// request, one response. It is not net/http's Transport because the socket's
// life, its proof and its end are the relay's business.
func (s *Server) exchangeHTTP(ctx context.Context, conn transport.Conn, out *outbound) (*http.Response, error) {
	hc := &httpConn{StreamConn: transport.NewStreamConn(conn), headLeft: s.cfg.MaxHeader + 4096}
	stop := context.AfterFunc(ctx, hc.leave)
	timer := &headerTimer{limit: s.cfg.ResponseHeaderTimeout, cut: hc.leave}
	fail := func(err error) (*http.Response, error) {
		timer.stop()
		stop()
		hc.leave()
		return nil, whyNoAnswer(ctx, out, timer, err)
	}
	head := out.appendHead(nil)
	if out.body == nil {
		if _, err := hc.Write(head); err != nil {
			return fail(ErrStreamClosed)
		}
		timer.start()
	} else {
		out.upload.done = make(chan struct{})
		send := func() {
			defer close(out.upload.done)
			if hc.upload(out, head) {
				timer.start()
			}
		}
		if !s.spawn(send) {
			close(out.upload.done)
			return fail(ErrDraining)
		}
	}
	br := bufio.NewReader(hc)
	resp, err := readResponse(br, out)
	if err != nil {
		if hc.got.Load() && !hc.broken.Load() {
			err = ErrBadAnswer
		} else {
			err = ErrStreamClosed
		}
		return fail(err)
	}
	timer.stop()
	hc.headLeft = -1
	body := &httpBody{hc: hc, br: br, body: resp.Body, stop: stop, unkeep: s.keepData(conn, func() bool { return conn.Writing() || !hc.reading.Load() })}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body = &upgradedBody{httpBody: body}
		return resp, nil
	}
	resp.Body = body
	return resp, nil
}

// readResponse reads the final response, and passes 1xx ones on.
func readResponse(br *bufio.Reader, out *outbound) (*http.Response, error) {
	const maxInformational = 16
	for range maxInformational {
		resp, err := http.ReadResponse(br, &http.Request{Method: out.method})
		if err != nil {
			return nil, err
		}
		if resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, nil
		}
		if resp.StatusCode != http.StatusContinue && out.inform != nil {
			out.inform(resp.StatusCode, resp.Header)
		}
	}
	return nil, fmt.Errorf("relay: more than %d informational responses", maxInformational)
}

// appendHead renders request line and header. The framing is our own.
func (out *outbound) appendHead(b []byte) []byte {
	buf := bytes.NewBuffer(b)
	target := out.path
	if out.query != "" {
		target += "?" + out.query
	}
	fmt.Fprintf(buf, "%s %s HTTP/1.1\r\nHost: %s\r\n", out.method, target, out.host)
	if out.upgrade != "" {
		fmt.Fprintf(buf, "Connection: Upgrade\r\nUpgrade: %s\r\n", out.upgrade)
	}
	switch {
	case out.length > 0:
		fmt.Fprintf(buf, "Content-Length: %d\r\n", out.length)
	case out.length < 0:
		buf.WriteString("Transfer-Encoding: chunked\r\n")
		for k := range out.trailer {
			fmt.Fprintf(buf, "Trailer: %s\r\n", k)
		}
	case out.method == http.MethodPost, out.method == http.MethodPut, out.method == http.MethodPatch:
		buf.WriteString("Content-Length: 0\r\n")
	}
	out.header.Write(buf)
	buf.WriteString("\r\n")
	return buf.Bytes()
}

// httpConn is the data socket of one exchange.
type httpConn struct {
	*transport.StreamConn

	headLeft int // bytes that the response's header may still take; negative once it was read

	got     atomic.Bool // a byte of the answer has come
	broken  atomic.Bool // the socket has ended
	reading atomic.Bool
	once    sync.Once
}

func (hc *httpConn) Read(p []byte) (int, error) {
	if hc.headLeft == 0 {
		return 0, ErrBadAnswer
	}
	if hc.headLeft > 0 {
		p = p[:min(len(p), hc.headLeft)]
	}
	hc.reading.Store(true)
	n, err := hc.StreamConn.Read(p)
	hc.reading.Store(false)
	if hc.headLeft > 0 {
		hc.headLeft -= n
	}
	if n > 0 {
		hc.got.Store(true)
	}
	if err != nil {
		hc.broken.Store(true)
	}
	return n, err
}

// leave ends an exchange before its end: the host's request is cancelled.
func (hc *httpConn) leave() {
	hc.once.Do(func() { hc.CloseWith(transport.CloseGoingAway, "the client went away") })
}

// complete ends the socket after a complete answer.
func (hc *httpConn) complete() {
	hc.once.Do(func() { hc.Close() })
}

// upload sends head and body. A chunk goes out as soon as it has come.
func (hc *httpConn) upload(out *outbound, head []byte) bool {
	bp := spliceBufs.Get().(*[]byte)
	defer spliceBufs.Put(bp)
	const room = 12 // of a chunk's size line and end
	buf := *bp
	if _, err := hc.Write(head); err != nil {
		return false
	}
	for left := out.length; ; {
		n, err := out.body.Read(buf[room : len(buf)-room])
		if err == io.EOF {
			out.upload.ended() // before the host can have answered it
		}
		if n > 0 {
			piece := buf[room : room+n]
			if out.length < 0 {
				piece = frameChunk(buf, room, n)
			}
			if left -= int64(n); out.length > 0 && left < 0 {
				err = io.ErrUnexpectedEOF // more than announced: never forwarded
			} else if _, werr := hc.Write(piece); werr != nil {
				return false
			}
		}
		if err == io.EOF && (out.length < 0 || left == 0) {
			return out.length > 0 || hc.endChunks(out)
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			out.upload.fail(err)
			hc.leave()
			return false
		}
	}
}

// frameChunk puts a chunk's size line and end around the n bytes at buf[at:].
func frameChunk(buf []byte, at, n int) []byte {
	var line [12]byte
	size := append(strconv.AppendUint(line[:0], uint64(n), 16), "\r\n"...)
	start := at - len(size)
	copy(buf[start:], size)
	copy(buf[at+n:], "\r\n")
	return buf[start : at+n+2]
}

func (hc *httpConn) endChunks(out *outbound) bool {
	var buf bytes.Buffer
	buf.WriteString("0\r\n")
	out.trailer.Write(&buf)
	buf.WriteString("\r\n")
	_, err := hc.Write(buf.Bytes())
	return err == nil
}

// httpBody is the body of an agent's answer; the socket ends with it.
type httpBody struct {
	hc     *httpConn
	br     *bufio.Reader // beneath body
	body   io.ReadCloser
	stop   func() bool
	unkeep func()
}

func (b *httpBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	switch {
	case err == io.EOF:
		b.end()
		b.hc.complete()
	case err != nil:
		b.end()
		b.hc.leave()
		err = ErrStreamClosed
	}
	return n, err
}

func (b *httpBody) ahead() bool { return b.br.Buffered() > 0 }

// Close ends the exchange; before the end of the answer it cancels the host's.
func (b *httpBody) Close() error {
	b.end()
	b.hc.leave()
	return nil
}

func (b *httpBody) end() {
	b.stop()
	b.unkeep()
}

// upgradedBody is the byte stream after a 101.
type upgradedBody struct{ *httpBody }

func (b *upgradedBody) Read(p []byte) (int, error)  { return b.br.Read(p) }
func (b *upgradedBody) Write(p []byte) (int, error) { return b.hc.Write(p) }
func (b *upgradedBody) CloseWrite() error           { return b.hc.CloseWrite() }
