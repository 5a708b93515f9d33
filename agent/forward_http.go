package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/dialback/dialback/transport"
)

// HTTPOptions configure ForwardHTTPWith.
type HTTPOptions struct {
	// DialContext dials the service. Nil means net.Dialer's. A call that fails,
	// returns no connection or takes longer than Config.DialTimeout is answered
	// 502, one that panics ends the stream; up to 100 calls that were given up
	// and have not returned are left behind.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
	// TLSClientConfig is for an https target. Nil means the default.
	TLSClientConfig *tls.Config
	// Host is the Host header of requests. Empty means that of the target.
	Host string
}

// ForwardHTTP is an HTTP service that another server on this machine answers:
// target is its URL, "http://127.0.0.1:3000". A path in it is put before that
// of every request. The service is spoken to by HTTP/1.1.
//
// Path and query reach the service to the letter; a path that would lead out of
// target's is answered 400. The Host header is that of target; X-Forwarded-*
// are those that the relay set. Streaming, trailers, informational answers and
// upgrades work. When the client leaves, its request is canceled. An answer
// that breaks off in the middle breaks off for the client too. A message whose
// framing is ambiguous is not forwarded, nor is one whose header is larger than
// 1 MiB, or whose Connection names more than 32 fields.
//
// Connections to the service are kept, but a request that could not be sent
// again (anything but GET, HEAD, OPTIONS and TRACE without a body, or with an
// Idempotency-Key and no body) never rides on one that the service may be about
// to close: it takes one that was used within the last 250 milliseconds, or
// until a second before the end that the service announced by Keep-Alive:
// timeout=, else a new one. The others are sent again, once, if a kept
// connection turns out to be closed, or brings a 408 that closes it.
func ForwardHTTP(target string) Handler { return ForwardHTTPWith(target, HTTPOptions{}) }

// ForwardHTTPWith is ForwardHTTP with options.
func ForwardHTTPWith(target string, o HTTPOptions) Handler {
	u, err := parseTarget(target)
	if err == nil && !isHost(o.Host) {
		err = errors.New("HTTPOptions.Host is not a host")
	}
	return &forwardHandler{target: u, options: o, err: err}
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
	if !isHost(u.Host) {
		return nil, errors.New("want the host of the target in ASCII")
	}
	return u, nil
}

// isHost reports whether host can be sent as a Host header.
func isHost(host string) bool {
	for _, c := range []byte(host) {
		if c <= ' ' || c >= 0x7f || c == '/' {
			return false
		}
	}
	return true
}

type forwardHandler struct {
	target  *url.URL
	options HTTPOptions
	err     error // what is wrong with it
}

func (h *forwardHandler) check() error  { return h.err }
func (h *forwardHandler) proto() string { return transport.ProtoHTTP }

func (h *forwardHandler) start(e env) service {
	o := h.options
	o.DialContext = e.dialer(o.DialContext)
	s := &forwardService{
		env:  e,
		base: strings.TrimRight(h.target.EscapedPath(), "/"),
		host: o.Host,
		hop:  newHop(h.target, &o, e.dialTimeout),
	}
	if s.host == "" {
		s.host = hostHeader(h.target)
	}
	return s
}

// hostHeader is the host of a target, without the zone of an address.
func hostHeader(target *url.URL) string {
	if i := strings.IndexByte(target.Host, '%'); i >= 0 {
		return target.Host[:i] + target.Host[strings.IndexByte(target.Host, ']'):]
	}
	return target.Host
}

// forwardService passes requests on to one local service. It is its own
// endpoint: connections to the service are made when there is a request.
type forwardService struct {
	env
	// Immutable after start.
	base string // escaped path of the target, without trailing slash
	host string // for the Host header
	hop  *hop
}

func (s *forwardService) open(context.Context, StreamInfo) (endpoint, error) { return s, nil }
func (s *forwardService) abandon()                                           {}
func (s *forwardService) stop()                                              { s.hop.close() }

// serve serves one exchange after the other. Only the relay ends an idle
// stream, so that no request can cross with a close.
func (s *forwardService) serve(socket *dataSocket) {
	stream := newHTTPStream(socket, s)
	defer func() {
		if p := recover(); p != nil { // of the embedder's DialContext
			s.log.Error("forwarding panicked", "service", socket.info.Service, "panic", p)
			stream.leave()
			stream.CloseWith(transport.CloseInternal, "forwarding panicked")
		}
	}()
	for stream.serveOne() {
	}
}

var (
	errLeavesBase = errors.New("the path leaves the service's base path")
	errTarget     = errors.New("the request has no path")
)

// appendTarget appends the request target that goes out for the one that came
// in, byte by byte.
func (s *forwardService) appendTarget(b []byte, h *head) ([]byte, error) {
	target := h.target
	if string(target) == "*" && string(h.method) == http.MethodOptions {
		return append(b, '*'), nil
	}
	if string(h.method) == http.MethodConnect {
		return nil, errTarget // its answer has framing of its own
	}
	if target[0] != '/' {
		// The absolute form: what it says about the host is not followed.
		_, rest, ok := bytes.Cut(target, []byte("://"))
		slash := bytes.IndexAny(rest, "/?")
		switch {
		case !ok:
			return nil, errTarget
		case slash < 0:
			target = []byte("/")
		case rest[slash] == '?':
			target = append([]byte("/"), rest[slash:]...)
		default:
			target = rest[slash:]
		}
	}
	if s.base != "" {
		path, _, _ := bytes.Cut(target, []byte("?"))
		if leavesBase(string(path)) {
			return nil, errLeavesBase
		}
		b = append(b, s.base...)
	}
	return append(b, target...), nil
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
