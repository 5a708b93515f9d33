package agent

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// freshFor is how long a connection may have been idle for a request that
	// cannot be sent again, unless the service says how long it keeps one.
	// Servers close idle connections after seconds; one that has been used so
	// recently is not about to be closed.
	freshFor = 250 * time.Millisecond
	// idleFor is the same for requests that can be sent again.
	idleFor = 90 * time.Second
	// spareTime is kept from what the service announces.
	spareTime = time.Second
	// maxIdle bounds the idle connections to one service.
	maxIdle = 1000
)

// hop is the way to one local service. It decides which requests may share
// connections.
//
// The danger is a request that crosses with the service's close of an idle
// connection: it fails, and if it may have been carried out it cannot be sent
// again. So such requests use connections of their own, which are closed by
// this side long before. For the others net/http sends again what got no byte
// of an answer on a connection that had been idle.
type hop struct {
	// Immutable after newHop.
	dialContext func(ctx context.Context, network, addr string) (net.Conn, error)
	tls         *tls.Config
	timeout     time.Duration
	repeatable  *http.Transport // requests that can be sent again
	single      *http.Transport // those that cannot
	upgrades    *http.Transport // one connection each, which they keep

	// announced is used for both kinds while the service says how long it
	// keeps idle connections; nil while it does not.
	announced atomic.Pointer[announcedPool]
}

// announcedPool holds connections that the service keeps for a known time.
type announcedPool struct {
	keeps     time.Duration
	transport *http.Transport
}

func newHop(o *HTTPOptions, timeout time.Duration) *hop {
	h := &hop{dialContext: o.DialContext, tls: o.TLSClientConfig, timeout: timeout}
	if h.dialContext == nil {
		h.dialContext = (&net.Dialer{}).DialContext
	}
	h.repeatable = h.newTransport(idleFor)
	h.single = h.newTransport(freshFor)
	h.upgrades = h.newTransport(0)
	return h
}

// newTransport makes a Transport that keeps idle connections for that long.
func (h *hop) newTransport(idle time.Duration) *http.Transport {
	return &http.Transport{
		DialContext:           h.dial,
		TLSClientConfig:       h.tls,
		TLSHandshakeTimeout:   h.timeout,
		TLSNextProto:          map[string]func(string, *tls.Conn) http.RoundTripper{},
		DisableKeepAlives:     idle <= 0,
		IdleConnTimeout:       idle,
		MaxIdleConnsPerHost:   maxIdle,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true, // nothing is added or unpacked on the way
		WriteBufferSize:       8 << 10,
		ReadBufferSize:        8 << 10,
	}
}

// dialError is a dial of the service that failed.
type dialError struct{ err error }

func (e *dialError) Error() string { return "service down: " + dialFailure(e.err) }
func (e *dialError) Unwrap() error { return e.err }

func (h *hop) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	conn, err := h.dialContext(ctx, network, addr)
	if err != nil {
		return nil, &dialError{err}
	}
	return conn, nil
}

// RoundTrip implements http.RoundTripper.
func (h *hop) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Header.Get("Upgrade") != "" {
		return h.upgrades.RoundTrip(req)
	}
	pool := h.announced.Load()
	res, err := h.pick(pool, req).RoundTrip(req)
	if err == nil && !res.Close {
		h.learn(pool, res.Header)
	}
	return res, err
}

func (h *hop) pick(pool *announcedPool, req *http.Request) *http.Transport {
	switch {
	case pool != nil:
		return pool.transport
	case repeatable(req):
		return h.repeatable
	}
	return h.single
}

// learn notes what an answer says about idle connections. When that changes,
// connections of the old pool are not used again.
func (h *hop) learn(pool *announcedPool, header http.Header) {
	keeps, ok := keepAliveTimeout(header)
	if !ok && pool == nil || ok && pool != nil && pool.keeps == keeps {
		return
	}
	var next *announcedPool
	if ok {
		next = &announcedPool{keeps: keeps, transport: h.newTransport(min(keeps-spareTime, idleFor))}
	}
	if h.announced.CompareAndSwap(pool, next) && pool != nil {
		// Also those that are in use now are closed afterwards.
		pool.transport.CloseIdleConnections()
	}
}

func (h *hop) close() {
	for _, t := range []*http.Transport{h.repeatable, h.single, h.upgrades} {
		t.CloseIdleConnections()
	}
	if pool := h.announced.Swap(nil); pool != nil {
		pool.transport.CloseIdleConnections()
	}
}

// repeatable reports whether net/http will send req again if a connection that
// had been idle gives no byte of an answer.
func repeatable(req *http.Request) bool {
	if req.Body != nil && req.Body != http.NoBody {
		return false // it would have to be kept
	}
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return req.Header.Get("Idempotency-Key") != ""
}

// keepAliveTimeout is the timeout of a Keep-Alive header, if it has one.
func keepAliveTimeout(h http.Header) (time.Duration, bool) {
	for _, value := range h["Keep-Alive"] {
		for field := range strings.SplitSeq(value, ",") {
			name, n, _ := strings.Cut(field, "=")
			if !strings.EqualFold(strings.TrimSpace(name), "timeout") {
				continue
			}
			seconds, err := strconv.ParseUint(strings.TrimSpace(n), 10, 31)
			if err != nil {
				return 0, false
			}
			return time.Duration(seconds) * time.Second, true
		}
	}
	return 0, false
}
