package agent

import (
	"context"
	"errors"
	"net/http"
	"time"
)

const (
	// messageSize is how many bytes a message to the relay has at most: so many
	// leave in one write to the network, with the header of their frame.
	messageSize = 64<<10 - 32
	// maxInformational bounds the 1xx answers before an answer.
	maxInformational = 16
	// uploadGrace is what the end of a request's body is waited for behind a
	// complete answer before the connection to the service is given up.
	uploadGrace = 50 * time.Millisecond
)

var (
	errInformational = headError("there are more than 16 informational answers")
	errIdleEnd       = errors.New("agent: the service has ended an idle connection with a 408")
)

// exchange is one request and its answer, owned by the goroutine of serveOne.
type exchange struct {
	s   *httpStream
	buf []byte // pooled, of messageSize; empty

	// Of the request.
	isHead     bool // HEAD: its answer has no body
	isOld      bool // HTTP/1.0
	repeatable bool
	upgrade    string // the protocols that it offers to be upgraded to
	expects    bool   // it waits for 100 before it sends its body
	continued  bool   // 100 was passed on
	last       bool   // the stream ends with this exchange

	// Of the connection to the service.
	local     *localConn // nil when there is none, or no more
	reused    bool       // it had been idle
	unsent    bool       // it has not taken a byte
	short     bool       // it has not taken all of what went with the head
	got       bool       // it has brought a byte
	reusable  bool       // its answer is complete and does not forbid it
	keeps     time.Duration
	announced bool
	headLen   int // of the answer; it is not taken from local.in yet

	up *upload // reads the request's body; nil if that went with the head, or before send
}

// serveOne forwards the next request and its answer, and reports whether
// another may follow. If not it has ended the stream.
func (s *httpStream) serveOne() bool {
	s.forget()
	p, err := s.nextHead()
	if err != nil && err != errHeadTooLarge {
		s.finish()
		return false
	}
	buf := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buf)
	x := exchange{s: s, buf: buf[:0:messageSize]}
	if err != nil {
		x.last = true
		return x.refuse(http.StatusRequestHeaderFieldsTooLarge, "bad_request", "the request's header is larger than 1 MiB")
	}
	return x.run(p)
}

// nextHead waits for the head of a request. Empty lines before it are dropped.
func (s *httpStream) nextHead() ([]byte, error) {
	for range 4 {
		p, err := s.in.Peek(1)
		if err != nil {
			return nil, err
		}
		if p[0] != '\r' && p[0] != '\n' {
			break
		}
		_, _ = s.in.Discard(1)
	}
	return s.in.peekHead()
}

// run forwards the request whose head is p.
func (x *exchange) run(p []byte) bool {
	s, h := x.s, &x.s.request
	if err := h.parseRequest(p); err != nil {
		x.last = true
		return x.refuse(http.StatusBadRequest, "bad_request", err.Error()[len("agent: "):])
	}
	x.isHead, x.isOld, x.upgrade = string(h.method) == http.MethodHead, h.minor == 0, ""
	x.repeatable, x.last = h.repeatable(), h.closes || x.isOld
	b := newBody(&s.in, h, false)
	x.expects = h.expects && !b.empty() && !x.isOld
	if h.asksUpgrade() {
		x.upgrade = string(h.upgrade)
	}
	out, err := x.appendRequest(x.buf, h)
	_, _ = s.in.Discard(len(p))
	if err != nil {
		x.last = x.last || !b.empty()
		return x.refuse(http.StatusBadRequest, "bad_request", err.Error())
	}
	if !b.empty() && b.known() && b.left <= int64(min(s.in.Buffered(), cap(out)-len(out))) {
		n, _ := s.in.Read(out[len(out) : len(out)+int(b.left)]) // it is there
		out, b = out[:len(out)+n], body{}
	}

	s.watch()
	defer s.unwatch()
	if err := x.roundTrip(out, b); err != nil {
		return x.noAnswer(err, b)
	}
	if s.answer.status == http.StatusSwitchingProtocols {
		return x.switchProtocols()
	}
	if err := x.passAnswer(); err != nil {
		return x.broken()
	}
	return x.settle()
}

// appendRequest appends the head that goes to the service.
func (x *exchange) appendRequest(b []byte, h *head) ([]byte, error) {
	b = append(append(b, h.method...), ' ')
	b, err := x.s.svc.appendTarget(b, h)
	if err != nil {
		return nil, err
	}
	b = append(append(append(b, " HTTP/1.1\r\nHost: "...), x.s.svc.host...), "\r\n"...)
	b = h.appendFields(b)
	switch {
	case h.chunked:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
		b = h.appendTrailerNames(b)
	case h.length >= 0:
		b = appendLength(b, h.length)
	case string(h.method) == http.MethodPost, string(h.method) == http.MethodPut, string(h.method) == http.MethodPatch:
		b = appendLength(b, 0)
	}
	if h.teTrailers {
		b = append(b, "Te: trailers\r\n"...)
	}
	if x.upgrade != "" {
		b = append(append(append(b, "Connection: Upgrade\r\nUpgrade: "...), x.upgrade...), "\r\n"...)
	}
	return append(b, "\r\n"...), nil
}

// roundTrip sends the request and reads the head of its answer. A request that
// has met a connection which the service was about to close is sent once more,
// on a fresh one, if it may be.
func (x *exchange) roundTrip(out []byte, b body) error {
	for fresh := x.upgrade != ""; ; fresh = true {
		err := x.connect(fresh)
		if err == nil {
			err = x.send(out, b)
		}
		if err == nil || x.up != nil || !x.reused || fresh || !x.unsent && (x.got || !x.repeatable) || x.s.left() {
			return err
		}
		x.drop()
	}
}

// connect takes an idle connection to the service, or makes one.
func (x *exchange) connect(fresh bool) error {
	s, hop := x.s, x.s.svc.hop
	x.reused, x.unsent, x.short, x.got = false, false, false, false
	if !fresh {
		x.local = hop.take(x.repeatable)
		x.reused = x.local != nil
	}
	if x.local == nil {
		ctx, cancel := context.WithCancel(s.svc.ctx)
		defer cancel()
		if !s.dialing(cancel) {
			return context.Canceled
		}
		local, err := hop.dial(ctx)
		s.dialing(nil)
		if err != nil {
			return err
		}
		x.local = local
	}
	if !s.hold(x.local) {
		return context.Canceled
	}
	return nil
}

// send sends the request, and reads the head of its answer.
func (x *exchange) send(out []byte, b body) error {
	n, werr := x.local.Write(out)
	if werr != nil && n == 0 && x.reused {
		x.unsent = true
		return werr
	}
	x.short = werr != nil
	if !b.empty() {
		x.s.unwatch()
		x.up = startUpload(x.s, x.local, b, x.short)
	}
	err := x.readHead() // it may be there although not all was taken
	if err != nil && werr != nil && !x.got {
		return werr
	}
	return err
}

// readHead reads the head of the answer, and passes informational ones on.
func (x *exchange) readHead() error {
	h, in := &x.s.answer, &x.local.in
	for i := range maxInformational + 1 {
		p, err := in.peekHead()
		x.got = x.got || in.Buffered() > 0
		if err != nil {
			return err
		}
		if err := h.parseAnswer(p); err != nil {
			return err
		}
		x.headLen = len(p)
		switch {
		case i == 0 && x.reused && x.repeatable && h.status == http.StatusRequestTimeout && !h.persists():
			x.got = false // it was on its way before the request was
			return errIdleEnd
		case h.status == http.StatusSwitchingProtocols && !offers(x.upgrade, h.upgrade):
			return errUpgrade
		case h.status == http.StatusSwitchingProtocols, h.status >= 200:
			return nil
		}
		if err := x.inform(h); err != nil {
			return err
		}
		_, _ = in.Discard(x.headLen)
	}
	return errInformational
}

// settle ends an exchange whose answer is complete.
func (x *exchange) settle() bool {
	if x.local != nil { // the request's body was not sent to its end
		if !x.up.endsWithin(uploadGrace) {
			x.drop() // from here on the upload drops what comes
		} else {
			x.giveBack()
		}
	}
	if x.last {
		x.s.finish()
	}
	// Only the relay ends a stream: it does so if it does not want to send the
	// rest of the body.
	if x.up != nil && x.up.wait() != nil {
		x.s.finish()
		return false
	}
	return !x.last
}

// broken ends an exchange whose answer is not complete.
func (x *exchange) broken() bool {
	x.s.breakOff()
	x.drop()
	if x.up != nil {
		_ = x.up.wait()
	}
	return false
}

// giveBack gives the connection to the service back, unless the request's body
// is still on its way.
func (x *exchange) giveBack() {
	if x.local == nil || x.up != nil && !x.up.ended() {
		return
	}
	c := x.local
	x.local = nil
	if x.s.hold(nil) && x.reusable && !x.short && (x.up == nil || x.up.whole) && c.in.Buffered() == 0 && c.in.Size() == sourceSize {
		x.s.svc.hop.put(c, x.keeps, x.announced)
	} else {
		c.close()
	}
}

// unasked reports whether the client has not been told to send the body that it
// holds back. What comes next on the stream cannot be known then.
func (x *exchange) unasked() bool {
	return x.expects && !x.continued && x.up != nil && !x.up.ended()
}

// drop cuts the connection to the service.
func (x *exchange) drop() {
	if x.local == nil {
		return
	}
	x.s.hold(nil)
	x.local.close()
	x.local = nil
}

// noAnswer ends an exchange whose service has not answered. b is the request's
// body, if that was not sent with the head.
func (x *exchange) noAnswer(err error, b body) bool {
	x.drop()
	if x.s.left() || x.s.svc.ctx.Err() != nil { // the end of Run is not the service's fault
		return x.broken()
	}
	if x.up == nil && !b.empty() { // the service was not reached; the body is still to come
		x.s.unwatch()
		x.up = startUpload(x.s, nil, b, true)
	}
	service := x.s.info.Service
	x.s.svc.log.Debug("no answer", "service", service, "err", err)
	if !x.refuseDown(whyNoAnswer(service, err)) {
		return x.broken()
	}
	return x.settle()
}

// whyNoAnswer says what the client is told.
func whyNoAnswer(service string, err error) string {
	var down *dialError
	var malformed headError
	switch {
	case errors.As(err, &down):
		return serviceDown(service, down).reason
	case err == errHeadTooLarge:
		return "the header of the service's answer is larger than 1 MiB"
	case errors.As(err, &malformed):
		return "the service's answer is not valid HTTP/1.1: " + err.Error()[len("agent: "):]
	case isTimeout(err):
		return "the service took too long"
	}
	return "the service closed the connection before it answered"
}
