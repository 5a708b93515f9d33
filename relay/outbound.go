package relay

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"sync"
	"time"
)

// outbound is a request on its way to a host.
type outbound struct {
	method    string
	path      string // escaped, as sent
	query     string // raw, as sent
	host      string
	header    http.Header     // end to end only
	body      io.Reader       // nil when there is none
	replay    *replayBody     // body, of a request that may be sent twice; else nil
	length    int64           // of body; -1 when it is not known
	trailerOf *http.Request   // whose Trailer is complete once body has ended
	identity  map[string]bool // of the headers that the identity sets, by foldName
	upgrade   string          // the value of Upgrade, for requests that ask for one
	webSocket bool

	// begin is called once the host is there, before the body is read; proceed,
	// once the host was sent the header, has a client send the body that waits
	// to be told so; inform passes a 1xx answer on. Each may be nil.
	begin   func()
	proceed func()
	inform  func(status int, h http.Header)

	upload upload
}

// upload is the state of the goroutine that sends a request's body.
type upload struct {
	done    chan struct{} // nil when there is no such goroutine; closed when it has ended
	stopped bool          // stopUpload was called; owned by the handler

	mu    sync.Mutex
	whole bool  // the body was read to its end
	err   error // why the client's body could not be read
}

func (u *upload) ended() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.whole = true
}

func (u *upload) isWhole() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.whole
}

func (u *upload) fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err == nil {
		u.err = err
	}
}

func (u *upload) failed() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

// readBody is called before the body is read, in the goroutine that calls inform.
func (out *outbound) readBody() {
	if out.proceed != nil {
		out.proceed()
		out.proceed = nil
	}
}

// check refuses what would not be one request any more once it is written as
// HTTP/1.1. net/http lets nothing of the kind in; the embedding program might.
func (out *outbound) check() error {
	unsafe := func(c rune) bool { return c <= ' ' || c == 0x7f }
	for _, s := range []string{out.method, out.path, out.query, out.host} {
		if strings.ContainsFunc(s, unsafe) {
			return badRequest("a control character or a space in the method, the URL or the host")
		}
	}
	if strings.ContainsFunc(out.upgrade, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return badRequest("a control character in Upgrade")
	}
	return nil
}

// repeatable reports whether the request may be sent again although its service
// may have seen it, and can be: its body is kept, if it has one.
func (out *outbound) repeatable() bool {
	return (out.body == nil || out.replay != nil) && out.mayRepeat()
}

// mayRepeat reports whether a service may see the request twice (RFC 9110,
// section 9.2.2; an Idempotency-Key says the same of others).
func (out *outbound) mayRepeat() bool {
	if out.upgrade != "" {
		return false
	}
	switch out.method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return len(out.header["Idempotency-Key"]) > 0 || !guardReplayRule
}

// sent reports whether the whole request has been sent.
func (out *outbound) sent() bool {
	if out.upload.done == nil {
		return true
	}
	select {
	case <-out.upload.done:
		return out.upload.isWhole()
	default:
		return false
	}
}

// awaitUpload waits until nobody reads the request's body any more, for limit at
// most, and reports whether that is so.
func (out *outbound) awaitUpload(ctx context.Context, limit time.Duration) bool {
	if out.upload.done == nil {
		return true
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-out.upload.done:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

// stopUpload makes sure that nobody reads the request's body any more, which a
// handler must not leave behind, and that what was not read of it is never
// taken for the next request. A read that waits for a silent client is woken
// by a deadline.
func (out *outbound) stopUpload(w http.ResponseWriter) {
	if out.upload.done == nil || out.upload.stopped {
		return
	}
	out.upload.stopped = true
	if !out.upload.isWhole() {
		// Never on a connection that is used again: the deadline would also
		// end net/http's own read, and with it the context of what follows.
		closeAfterReply(w)
		http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
	}
	<-out.upload.done
}

const (
	// dropTime is how long a refused request's body is waited for, so that the
	// connection can be used again.
	dropTime = 100 * time.Millisecond
	dropSize = 256 << 10
)

// dropBody gets rid of the body of a request that is refused: net/http would
// wait for it before the answer, however slowly it comes.
func dropBody(w http.ResponseWriter, r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 || r.ProtoMajor != 1 || r.Header.Get("Expect") != "" {
		return
	}
	rc := http.NewResponseController(w)
	rc.SetReadDeadline(time.Now().Add(dropTime))
	if _, err := io.CopyN(io.Discard, r.Body, dropSize); err == io.EOF {
		rc.SetReadDeadline(time.Time{})
		return
	}
	rc.EnableFullDuplex()
	closeAfterReply(w)
	rc.SetReadDeadline(time.Unix(1, 0))
}

// closeAfterReply tells net/http not to use the connection again. Only a
// MaxBytesReader can say so after the header is out. Without it, with full
// duplex, net/http 1.26 goes on behind the part of a body that was read.
func closeAfterReply(w http.ResponseWriter) {
	http.MaxBytesReader(innermost(w), io.NopCloser(strings.NewReader("x")), 0).Read(make([]byte, 1))
}

// newOutbound makes an outbound of r, whoever made that, except for the body.
func newOutbound(r *http.Request, path string) *outbound {
	out := &outbound{
		method: r.Method, path: path, query: r.URL.RawQuery, host: r.Host,
		header: endToEnd(r.Header), length: r.ContentLength, trailerOf: r, upgrade: upgradeOf(r),
	}
	maps.DeleteFunc(out.header, func(name string, _ []string) bool { return isOwnField(name) })
	if headerHas(r.Header, "Te", "trailers") {
		out.header["Te"] = []string{"trailers"}
	}
	return out
}

// outbound prepares a client's r for a host: the identity's headers instead of
// the client's, X-Forwarded-* of our own, no private cookies.
func (s *Server) outbound(r *http.Request, id Identity, path, prefix string) *outbound {
	out := newOutbound(r, path)
	if r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 {
		out.body = r.Body
	} else {
		out.length = 0
	}
	out.webSocket = isWebSocket(r)
	h := out.header
	out.identity = make(map[string]bool, len(id.Headers))
	for k := range id.Headers {
		out.identity[foldName(k)] = true
	}
	for k := range h {
		name := foldName(k)
		if out.identity[name] || isForwarding(name) && (name != k || !s.cfg.TrustForwarded) {
			delete(h, k)
		}
	}
	forward(h, r, prefix)
	cutCookies(h, s.cfg.PrivateCookies)
	for k, vs := range id.Headers {
		switch k = textproto.CanonicalMIMEHeaderKey(k); {
		case k == "Host" && len(vs) > 0:
			out.host = vs[0]
		case !isOwnField(k):
			h[k] = vs
		}
	}
	return out
}

// trailer is what of the request's trailer goes to the host: before body has
// ended, the names that were announced. A service may take a trailer for a header:
// it can be none that the relay vouches for.
func (out *outbound) trailer() http.Header {
	t := make(http.Header, len(out.trailerOf.Trailer))
	for k, vs := range out.trailerOf.Trailer {
		name := foldName(k)
		if !isOwnField(k) && !isForwarding(name) && !strings.HasPrefix(name, "Dialback-") && !out.identity[name] {
			t[k] = vs
		}
	}
	return t
}

// foldName is the canonical name of a header with _ read as -, as CGI, WSGI and
// their like do: to a service there, X_User is X-User.
func foldName(name string) string {
	return textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
}

// isForwarding reports whether a header of that name, by foldName, says where a
// request came from.
func isForwarding(name string) bool {
	return name == "Forwarded" || strings.HasPrefix(name, "X-Forwarded-")
}

// forward sets X-Forwarded-*, or adds to what a trusted proxy has set.
func forward(h http.Header, r *http.Request, prefix string) {
	if ip, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		if prior := strings.Join(h["X-Forwarded-For"], ", "); prior != "" {
			ip = prior + ", " + ip
		}
		h["X-Forwarded-For"] = []string{ip}
	}
	set := func(k, v string) {
		if v != "" && len(h[k]) == 0 {
			h[k] = []string{v}
		}
	}
	set("X-Forwarded-Host", r.Host)
	proto := "http"
	if r.TLS != nil {
		proto = "https"
	}
	set("X-Forwarded-Proto", proto)
	if prefix != "" {
		set("X-Forwarded-Prefix", mountOf(r)+prefix)
	}
}

// mountOf is what a mount point has cut off from r's path: empty if there is none,
// or something else was done to the path.
func mountOf(r *http.Request) string {
	uri, _, _ := strings.Cut(r.RequestURI, "?")
	if !strings.HasPrefix(uri, "/") { // the absolute form
		_, uri, _ = strings.Cut(uri, "://")
		uri = uri[max(0, strings.IndexByte(uri, '/')):]
	}
	mount, ok := strings.CutSuffix(uri, pathOf(r.URL))
	if !ok {
		return ""
	}
	return mount
}

// hopByHop are the headers of one hop (RFC 9110, section 7.6.1).
var hopByHop = map[string]bool{
	"Connection": true, "Proxy-Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true, "Proxy-Authorization": true,
	"Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "Content-Length": true, "Http2-Settings": true,
}

// isOwnField reports whether a header of that name is the relay's own affair in a
// request: of one hop, told by outbound.host, or a wish that net/http fulfils when
// the body is read.
func isOwnField(name string) bool {
	name = foldName(name)
	return hopByHop[name] || name == "Host" || name == "Expect"
}

// endToEnd copies h without what concerns one hop only, the framing included.
func endToEnd(h http.Header) http.Header {
	c := make(http.Header, len(h)+4)
	for k, vs := range h {
		if !hopByHop[k] {
			c[k] = vs
		}
	}
	for _, line := range h["Connection"] {
		for _, name := range splitList(line) {
			delete(c, textproto.CanonicalMIMEHeaderKey(name))
		}
	}
	return c
}

// splitList splits a comma-separated header.
func splitList(line string) []string {
	var list []string
	for t := range strings.SplitSeq(line, ",") {
		if t = strings.TrimSpace(t); t != "" {
			list = append(list, t)
		}
	}
	return list
}

// limitBody applies MaxBody: a body that says that it is larger is refused
// before it is read, another one when it turns out to be.
func (s *Server) limitBody(out *outbound) error {
	limit := s.cfg.MaxBody
	if limit == 0 || out.body == nil {
		return nil
	}
	if out.length > limit {
		return ErrBodyTooLarge
	}
	out.body = &limitedBody{out.body, limit}
	return nil
}

type limitedBody struct {
	r    io.Reader
	left int64
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left { // one byte more tells that the body is larger
		p = p[:b.left+1]
	}
	n, err := b.r.Read(p)
	if int64(n) > b.left {
		return 0, ErrBodyTooLarge
	}
	b.left -= int64(n)
	return n, err
}

// uploadError is the typed error for a body that could not be read.
func uploadError(err error) error {
	if errors.Is(err, ErrBodyTooLarge) {
		return ErrBodyTooLarge
	}
	return errClientGone
}
