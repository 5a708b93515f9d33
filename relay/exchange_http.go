package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
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
	head := out.appendHead(make([]byte, 0, 1<<10))
	if _, err := hs.Write(head); err != nil {
		return fail(notSent(err))
	}
	if out.body == nil {
		timer.start()
	} else {
		out.readBody()
		out.upload.done = make(chan struct{})
		send := func() {
			defer close(out.upload.done)
			if hs.upload(out) {
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
	body := &httpBody{hs: hs, body: resp.Body, stop: stop, chunked: len(resp.TransferEncoding) > 0}
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
	b = append(append(append(b, out.method...), ' '), out.path...)
	if out.query != "" {
		b = append(append(b, '?'), out.query...)
	}
	b = appendField(append(b, " HTTP/1.1\r\n"...), "Host", out.host)
	if out.upgrade != "" {
		b = appendField(append(b, "Connection: Upgrade\r\n"...), "Upgrade", out.upgrade)
	}
	switch {
	case out.length > 0:
		b = appendField(b, "Content-Length", strconv.FormatInt(out.length, 10))
	case out.length < 0:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
		for k := range out.trailer() {
			b = appendField(b, "Trailer", k)
		}
	case out.method == http.MethodPost, out.method == http.MethodPut, out.method == http.MethodPatch:
		b = append(b, "Content-Length: 0\r\n"...)
	}
	return append(appendFields(b, out.header), "\r\n"...)
}

// appendFields renders h as Header.Write does, but for the order of names. An
// embedder's invalid name is left out, and a line break in a value is a space.
func appendFields(b []byte, h http.Header) []byte {
	for name, values := range h {
		if !isFieldName(name) {
			continue
		}
		for _, v := range values {
			b = appendField(b, name, v)
		}
	}
	return b
}

// isFieldName reports whether name is a token (RFC 9110, section 5.6.2).
func isFieldName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return name != ""
}

func appendField(b []byte, name, value string) []byte {
	b = append(append(b, name...), ": "...)
	if strings.ContainsAny(value, "\r\n") {
		value = strings.NewReplacer("\r", " ", "\n", " ").Replace(value)
	}
	return append(append(b, strings.Trim(value, " \t")...), "\r\n"...)
}

// upload sends the body. A chunk goes out as soon as it has come.
func (hs *httpStream) upload(out *outbound) bool {
	bp := spliceBufs.Get().(*[]byte)
	defer spliceBufs.Put(bp)
	const room = 12 // of a chunk's size line and end
	buf := *bp
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
	_, err := hs.Write(append(appendFields([]byte("0\r\n"), out.trailer()), "\r\n"...))
	return err == nil
}
