package relay

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// exchangeHTTP speaks HTTP/1.1 (RFC 9112) on a data socket of an agent: one
// request, one response. It is not net/http's Transport because the socket's
// life, its proof and its end are the relay's business.
//
// While there is no answer the stream must prove that it lives, from proveAfter
// on.
func (s *Server) exchangeHTTP(ctx context.Context, hs *httpStream, out *outbound, proveAfter time.Duration) (*http.Response, error) {
	hs.beginExchange()
	stop := context.AfterFunc(ctx, hs.leave)
	defer hs.guard(ctx, out, proveAfter)()
	timer := &headerTimer{limit: s.cfg.ResponseHeaderTimeout, cut: hs.leave}
	fail := func(err error) (*http.Response, error) {
		timer.stop()
		stop()
		hs.leave()
		return nil, whyNoAnswer(ctx, out, timer, err)
	}
	head := out.appendHead(nil)
	if out.body == nil {
		if _, err := hs.Write(head); err != nil {
			return fail(notSent(err))
		}
		timer.start()
	} else {
		out.upload.done = make(chan struct{})
		send := func() {
			defer close(out.upload.done)
			if hs.upload(out, head) {
				timer.start()
			}
		}
		if !s.spawn(send) {
			close(out.upload.done)
			return fail(ErrDraining)
		}
	}
	resp, err := readResponse(hs.br, out)
	if err != nil {
		if hs.got.Load() && !hs.broken.Load() {
			return fail(ErrBadAnswer)
		}
		return fail(notSent(err))
	}
	timer.stop()
	hs.headLeft = -1
	body := &httpBody{hs: hs, body: resp.Body, stop: stop}
	body.done = func() {
		if resp.Close || s.nodes.isDraining(hs.passes()) || !out.sent() || hs.br.Buffered() > 0 || !hs.hub.pool.put(hs, s.cfg.MaxIdleStreams) {
			hs.close()
		}
	}
	resp.Body = body
	if resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body = &upgradedBody{body}
	}
	return resp, nil
}

// notSent is the typed error for a request that could not be written.
func notSent(err error) error {
	var failed *openError
	if errors.As(err, &failed) {
		return failed.err
	}
	return ErrStreamClosed
}

// readResponse reads the final response, and passes 1xx ones on.
func readResponse(br *bufio.Reader, out *outbound) (*http.Response, error) {
	const maxInformational = 16
	for range maxInformational {
		resp, err := http.ReadResponse(br, &http.Request{Method: out.method})
		if err != nil {
			return nil, err
		}
		switch {
		case resp.StatusCode >= 200, resp.StatusCode == http.StatusSwitchingProtocols && out.upgrade != "":
			return resp, nil
		case resp.StatusCode == http.StatusSwitchingProtocols, resp.StatusCode < 100:
			return nil, fmt.Errorf("relay: status %d is no answer", resp.StatusCode)
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

// upload sends head and body. A chunk goes out as soon as it has come.
func (hs *httpStream) upload(out *outbound, head []byte) bool {
	bp := spliceBufs.Get().(*[]byte)
	defer spliceBufs.Put(bp)
	const room = 12 // of a chunk's size line and end
	buf := *bp
	if _, err := hs.Write(head); err != nil {
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
			} else if _, werr := hs.Write(piece); werr != nil {
				return false
			}
		}
		if err == io.EOF && (out.length < 0 || left == 0) {
			return out.length > 0 || hs.endChunks(out)
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			out.upload.fail(err)
			hs.leave()
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

func (hs *httpStream) endChunks(out *outbound) bool {
	var buf bytes.Buffer
	buf.WriteString("0\r\n")
	out.trailer.Write(&buf)
	buf.WriteString("\r\n")
	_, err := hs.Write(buf.Bytes())
	return err == nil
}
