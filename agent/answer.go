package agent

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"
)

// flushLater is how long the header of an answer whose length is known may wait
// for the first bytes of its body, so that both leave together. An answer of
// unknown length is a stream, and its header is sent at once.
const flushLater = 5 * time.Millisecond

// errorHeader is on answers that the agent makes itself, and on no others.
const errorHeader = "Dialback-Error"

// passAnswer passes on the answer whose head was read. What has come is sent
// before more is waited for.
func (x *exchange) passAnswer() error {
	h, in := &x.s.answer, &x.local.in
	b := newBody(in, h, true)
	if x.isHead || h.status == http.StatusNoContent || h.status == http.StatusNotModified {
		b = body{src: in}
	}
	x.reusable = h.persists() && (b.chunks != nil || b.left >= 0)
	x.keeps, x.announced = h.keeps()
	x.last = x.last || x.unasked()
	chunked := !b.known() && !x.isOld
	out := x.appendAnswer(h, chunked)
	_, _ = in.Discard(x.headLen)
	if b.empty() {
		x.giveBack()
		_, err := x.s.Write(out)
		return err
	}
	at := len(out)
	if at > messageSize/2 || !b.ready() && !(b.known() && x.local.await(flushLater)) {
		if _, err := x.s.Write(out); err != nil {
			return err
		}
		at = 0
	}
	return x.passBody(&b, at, chunked)
}

// passBody passes the body on behind the at bytes that x.buf begins with.
func (x *exchange) passBody(b *body, at int, chunked bool) error {
	buf := x.buf[:messageSize]
	for {
		out, err := fill(buf, at, b, chunked)
		if err == io.EOF {
			x.giveBack()
		}
		if len(out) > 0 {
			if _, werr := x.s.Write(out); werr != nil {
				return werr
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		at = 0
	}
}

// appendAnswer renders the head of the answer.
func (x *exchange) appendAnswer(h *head, chunked bool) []byte {
	b := appendStatus(x.buf, h)
	b = h.appendFields(b)
	switch {
	case chunked:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
		b = h.appendTrailerNames(b)
	case h.length >= 0 && h.status != http.StatusNoContent:
		b = appendLength(b, h.length)
	}
	if x.last {
		b = append(b, "Connection: close\r\n"...)
	}
	return append(b, "\r\n"...)
}

// inform passes an informational answer on. 100 is for who has asked for it.
func (x *exchange) inform(h *head) error {
	if x.isOld || h.status == http.StatusContinue && !x.expects {
		return nil
	}
	x.continued = x.continued || h.status == http.StatusContinue
	_, err := x.s.Write(append(h.appendFields(appendStatus(x.buf, h)), "\r\n"...))
	return err
}

func appendStatus(b []byte, h *head) []byte {
	b = strconv.AppendInt(append(b, "HTTP/1.1 "...), int64(h.status), 10)
	return append(append(append(b, ' '), h.reason...), "\r\n"...)
}

func appendLength(b []byte, n int64) []byte {
	return append(strconv.AppendInt(append(b, "Content-Length: "...), n, 10), "\r\n"...)
}

const (
	chunkLine = len("0000\r\n")           // before a chunk of up to 64 KiB
	chunkEnd  = len("\r\n" + "0\r\n\r\n") // behind the last one
)

// fill reads from a body behind the at bytes that buf begins with, and returns
// them all, as they go out. The error is that of body.read.
func fill(buf []byte, at int, b *body, chunked bool) ([]byte, error) {
	if !chunked {
		n, err := b.read(buf[at:])
		return buf[:at+n], err
	}
	from := at + chunkLine
	n, err := b.read(buf[from : len(buf)-chunkEnd])
	out := buf[:at]
	if n > 0 {
		const digits = "0123456789abcdef"
		copy(buf[at:], []byte{digits[n>>12&15], digits[n>>8&15], digits[n>>4&15], digits[n&15], '\r', '\n'})
		out = append(buf[:from+n], "\r\n"...)
	}
	if err == io.EOF {
		out = append(out, "0\r\n"...)
		if b.trailer != nil {
			out = b.trailer.appendFields(out)
		}
		out = append(out, "\r\n"...)
	}
	return out, err
}

// refuse answers with an error of the agent's own, and reports whether another
// request may follow.
func (x *exchange) refuse(status int, code, message string) bool {
	if x.writeError(status, code, message) != nil || x.last {
		x.s.finish()
		return false
	}
	return true
}

// refuseDown is refuse for a request that its service has not answered.
func (x *exchange) refuseDown(message string) bool {
	x.last = x.last || x.unasked()
	return x.writeError(http.StatusBadGateway, "service_down", message) == nil
}

func (x *exchange) writeError(status int, code, message string) error {
	type detail struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	body, _ := json.Marshal(map[string]detail{"error": {code, message}}) // strings always marshal
	b := strconv.AppendInt(append(x.buf, "HTTP/1.1 "...), int64(status), 10)
	b = append(append(append(b, ' '), http.StatusText(status)...), "\r\nContent-Type: application/json\r\nCache-Control: no-store\r\n"+errorHeader+": "...)
	b = appendLength(append(append(b, code...), "\r\n"...), int64(len(body)))
	if x.last {
		b = append(b, "Connection: close\r\n"...)
	}
	b = append(b, "\r\n"...)
	if !x.isHead {
		b = append(b, body...)
	}
	_, err := x.s.Write(b)
	return err
}
