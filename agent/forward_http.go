package agent

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"
)

// HTTPOptions configure ForwardHTTPWith.
type HTTPOptions struct {
	// DialContext dials the service. Nil means net.Dialer's.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
	// TLSClientConfig is for an https target. Nil means the default.
	TLSClientConfig *tls.Config
	// Host is the Host header of requests. Empty means that of the target.
	Host string
}

// ForwardHTTP is an HTTP service that another server on this machine answers:
// target is its URL, "http://127.0.0.1:3000". A path in it is put before that
// of every request.
//
// Path and query reach the service to the letter; a path that would lead out of
// target's is answered 400. The Host header is that of target; X-Forwarded-*
// are those that the relay set. Streaming, trailers, informational answers and
// upgrades work. When the client leaves, its request is canceled. An answer
// that breaks off in the middle breaks off for the client too.
//
// Connections to the service are kept, but a request that could not be sent
// again (anything but GET, HEAD, OPTIONS and TRACE without a body, or with an
// Idempotency-Key and no body) never rides on one that the service may be about
// to close: it takes one that was used within the last 250 milliseconds, or
// until a second before the end that the service announced by Keep-Alive:
// timeout=, else a new one. The others are sent again, once, if a kept
// connection turns out to be closed.
func ForwardHTTP(target string) Handler { return ForwardHTTPWith(target, HTTPOptions{}) }

// ForwardHTTPWith is ForwardHTTP with options.
func ForwardHTTPWith(target string, o HTTPOptions) Handler {
	u, err := parseTarget(target)
	return &httpHandler{err: err, build: func(e env) (http.Handler, func()) {
		f := newForwarder(u, &o, e)
		return f, f.hop.close
	}}
}

func parseTarget(target string) (*url.URL, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, errors.New("the target is not a URL")
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("scheme %q of the target is not http or https", u.Scheme)
	}
	if u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("want a host and a path only in the target")
	}
	return u, nil
}

// forwarder passes requests on to one local service.
type forwarder struct {
	// Immutable after newForwarder.
	target *url.URL
	base   string // escaped path of the target, without trailing slash
	host   string // for the Host header
	hop    *hop
	proxy  *httputil.ReverseProxy
	env    env
}

// flushLater is how long bytes of an answer whose length is known may wait for
// more of it: header and body of a small one leave together. An answer of
// unknown length is a stream, and sent on as it comes.
const flushLater = 5 * time.Millisecond

func newForwarder(target *url.URL, o *HTTPOptions, e env) *forwarder {
	f := &forwarder{
		target: target,
		base:   strings.TrimRight(target.EscapedPath(), "/"),
		host:   o.Host,
		hop:    newHop(o, e.dialTimeout),
		env:    e,
	}
	if f.host == "" {
		f.host = target.Host
	}
	f.proxy = &httputil.ReverseProxy{
		Rewrite:        f.rewrite,
		Transport:      f.hop,
		FlushInterval:  flushLater,
		BufferPool:     bufferPool{},
		ModifyResponse: f.modifyResponse,
		ErrorHandler:   f.fail,
		ErrorLog:       slogLogger(e.log, slog.LevelDebug),
	}
	return f
}

// ServeHTTP implements http.Handler.
func (f *forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u, err := f.resolve(r)
	if err != nil {
		writeError(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	r.URL = u
	if r.ContentLength < 0 && r.Trailer == nil {
		// Trailers that are not announced are added to this map when the body
		// has been read; rewrite gives the same map to the request that goes
		// out.
		r.Trailer = make(http.Header)
	}
	if stream, ok := r.Context().Value(streamInfoKey{}).(*Stream); ok && r.ContentLength != 0 {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		probe := newProbe(stream.Conn(), cancel)
		defer probe.stop()
		r = r.WithContext(ctx)
		r.Body = probedBody{r.Body, probe}
	}
	f.proxy.ServeHTTP(&answerWriter{ResponseWriter: w}, r)
}

var (
	errLeavesBase = errors.New("the path leaves the service's base path")
	errTarget     = errors.New("the request has no path")
)

// resolve makes the URL that goes out from the one that came in, byte by byte.
func (f *forwarder) resolve(r *http.Request) (*url.URL, error) {
	target := r.RequestURI
	if target == "*" && r.Method == http.MethodOptions {
		return &url.URL{Scheme: f.target.Scheme, Host: f.target.Host, Opaque: target}, nil
	}
	if !strings.HasPrefix(target, "/") {
		// The absolute form: what it says about the host is not followed.
		_, rest, ok := strings.Cut(target, "://")
		slash := strings.IndexAny(rest, "/?")
		switch {
		case !ok || r.Method == http.MethodConnect:
			return nil, errTarget
		case slash < 0:
			target = "/"
		case rest[slash] == '?':
			target = "/" + rest[slash:]
		default:
			target = rest[slash:]
		}
	}
	path, query, hasQuery := strings.Cut(target, "?")
	if f.base != "" {
		if leavesBase(path) {
			return nil, errLeavesBase
		}
		path = f.base + path
	}
	u := &url.URL{Scheme: f.target.Scheme, Host: f.target.Host, RawQuery: query, ForceQuery: hasQuery}
	if !strings.HasPrefix(path, "//") {
		u.Opaque = path
		return u, nil
	}
	// An opaque part that begins with two slashes would be sent in the
	// absolute form. A raw path is sent as it is, if it is valid.
	u.RawPath = escapeInvalid(path)
	var err error
	if u.Path, err = url.PathUnescape(u.RawPath); err != nil {
		return nil, errTarget
	}
	return u, nil
}

// leavesBase reports whether a service that decodes the path could be led out
// of a base path in front of it.
func leavesBase(escaped string) bool {
	path, err := url.PathUnescape(escaped)
	if err != nil {
		return true
	}
	for segment := range strings.FieldsFuncSeq(path, func(c rune) bool { return c == '/' || c == '\\' }) {
		if segment == ".." || strings.HasPrefix(segment, "..;") {
			return true
		}
	}
	return false
}

// escapeInvalid escapes the bytes of a path that net/url would not send as
// they are.
func escapeInvalid(path string) string {
	const valid = "-_.~!$&'()*+,;=:@/%[]"
	var b strings.Builder
	for i := range len(path) {
		c := path[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte(valid, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// rewrite completes the request that goes out: ReverseProxy has removed the
// hop-by-hop headers, and some that it should not.
func (f *forwarder) rewrite(p *httputil.ProxyRequest) {
	p.Out.URL.RawQuery = p.In.URL.RawQuery
	p.Out.Host = f.host
	p.Out.Trailer = p.In.Trailer
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v, ok := p.In.Header[name]; ok {
			p.Out.Header[name] = v
		}
	}
}

// errorHeader is on answers that the agent makes itself, and on no others.
const errorHeader = "Dialback-Error"

// modifyResponse takes upgrades out of ReverseProxy's hands.
func (f *forwarder) modifyResponse(res *http.Response) error {
	if res.StatusCode == http.StatusSwitchingProtocols {
		return takeUpgrade(res)
	}
	res.Header.Del(errorHeader)
	return nil
}

// fail answers a request that got no answer.
func (f *forwarder) fail(w http.ResponseWriter, r *http.Request, err error) {
	var up *upgrade
	if errors.As(err, &up) {
		up.serve(w, r, f.env)
		return
	}
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the client has left
	}
	info, _ := StreamInfoFrom(r.Context())
	var down *dialError
	message := "the service closed the connection before it answered"
	switch {
	case errors.As(err, &down):
		message = serviceDown(info.Service, down.err).reason
	case isTimeout(err):
		message = "the service took too long"
	}
	f.env.log.Debug("no answer", "service", info.Service, "err", err)
	writeError(w, http.StatusBadGateway, "service_down", message)
}

// writeError answers with an error of the agent's own.
func writeError(w http.ResponseWriter, status int, code, message string) {
	type detail struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	body, _ := json.Marshal(map[string]detail{"error": {code, message}}) // strings always marshal
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", fmt.Sprint(len(body)))
	h.Set("Cache-Control", "no-store")
	h.Set(errorHeader, code)
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// answerWriter keeps net/http from adding headers to an answer of the service:
// a Content-Type that it guesses, and a Date.
type answerWriter struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *answerWriter) WriteHeader(status int) {
	if status >= 200 {
		h := w.Header()
		for _, name := range []string{"Content-Type", "Date"} {
			if _, ok := h[name]; !ok {
				h[name] = nil
			}
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// bufferPool implements httputil.BufferPool.
type bufferPool struct{}

func (bufferPool) Get() []byte  { return buffers.Get().(*[bufferSize]byte)[:] }
func (bufferPool) Put(b []byte) { buffers.Put((*[bufferSize]byte)(b)) }

// slogLogger is l for those who want a log.Logger.
func slogLogger(l *slog.Logger, level slog.Level) *log.Logger {
	return slog.NewLogLogger(l.Handler(), level)
}
