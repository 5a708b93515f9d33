package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
)

// handshake is the RoundTripper of one Dial. It puts conn's rawConn between
// the WebSocket library and the network, and sees to it that nothing that was
// begun for this Dial outlives its context: an http.Transport goes on to
// connect, and to wait for TLS, when its request has been given up, for the
// sake of the next one.
type handshake struct {
	// Immutable after newHandshake.
	ctx  context.Context // of the handshake
	base *http.Transport
	conn *wsConn

	// Owned by the goroutine that dials.
	nc      net.Conn // of the connection that the request went out on
	answer  *HandshakeError
	network *handshakeConn // set by RoundTrip, for an answer of 101

	// Guarded by mu.
	mu     sync.Mutex
	guards []func() bool // stop the end of ctx from closing a connection
}

// newHandshake makes c's handshake over t, which may be nil.
func newHandshake(ctx context.Context, c *wsConn, t *http.Transport) *handshake {
	if t == nil {
		t = defaultTransport()
	}
	h := &handshake{ctx: ctx, base: t.Clone(), conn: c}
	h.base.DisableKeepAlives = true // the one request is all
	h.base.DialContext = h.guarded(plainDialer(t))
	if dial := tlsDialer(t); dial != nil {
		h.base.DialTLSContext = h.guarded(dial)
	}
	return h
}

// defaultTransport is for dials that bring no Transport.
var defaultTransport = sync.OnceValue(func() *http.Transport {
	return &http.Transport{
		Proxy:           http.ProxyFromEnvironment,
		TLSClientConfig: &tls.Config{ClientSessionCache: tls.NewLRUClientSessionCache(0)},
	}
})

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// plainDialer is how t connects.
func plainDialer(t *http.Transport) dialFunc {
	switch {
	case t.DialContext != nil:
		return t.DialContext
	//lint:ignore SA1019 deprecated, and still to be honoured
	case t.Dial != nil:
		//lint:ignore SA1019 as above
		return withoutContext(t.Dial)
	default:
		return new(net.Dialer).DialContext
	}
}

// tlsDialer is how t connects for https, or nil if that is by plainDialer.
func tlsDialer(t *http.Transport) dialFunc {
	switch {
	case t.DialTLSContext != nil:
		return t.DialTLSContext
	//lint:ignore SA1019 deprecated, and still to be honoured
	case t.DialTLS != nil:
		//lint:ignore SA1019 as above
		return withoutContext(t.DialTLS)
	default:
		return nil
	}
}

func withoutContext(dial func(network, addr string) (net.Conn, error)) dialFunc {
	return func(_ context.Context, network, addr string) (net.Conn, error) { return dial(network, addr) }
}

// guarded ends dial, and closes what it has connected, when h.ctx ends.
func (h *handshake) guarded(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(h.ctx, cancel)()
		nc, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		stop := context.AfterFunc(h.ctx, func() { _ = nc.Close() })
		h.mu.Lock()
		h.guards = append(h.guards, stop)
		h.mu.Unlock()
		return nc, nil
	}
}

// release frees the connection from h.ctx. It is false if that has ended.
func (h *handshake) release() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	free := true
	for _, stop := range h.guards {
		free = stop() && free
	}
	return free
}

func (h *handshake) gotConn(i httptrace.GotConnInfo) { h.nc = i.Conn }

// RoundTrip implements http.RoundTripper.
func (h *handshake) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := h.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		h.answer = readAnswer(resp)
		// http.Client would parse it, and quote it in an error.
		resp.Header.Del("Location")
		return resp, nil
	}
	if h.nc == nil {
		_ = resp.Body.Close()
		return nil, errors.New("the transport does not tell its connection")
	}
	h.network = h.conn.connect(h.nc, resp.Body, true)
	resp.Body = h.network
	return resp, nil
}
