package agent

import (
	"context"
	"crypto/tls"
	"net"
	"net/url"
	"slices"
	"sync"
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

// hop is the way to one local service. It keeps idle connections and decides
// which requests may use them.
//
// The danger is a request that crosses with the service's close of an idle
// connection: it fails, and if it may have been carried out it cannot be sent
// again. So such requests use a connection only while the service is surely not
// about to close it. The others use any, and are sent again by their exchange
// if it gives no byte of an answer, or a 408 that ends it: some servers send one
// when they give an idle connection up.
type hop struct {
	// Immutable after newHop.
	dialContext func(ctx context.Context, network, addr string) (net.Conn, error)
	addr        string
	tls         *tls.Config // nil for http
	timeout     time.Duration

	// Guarded by mu. Never held across I/O.
	mu     sync.Mutex
	closed bool
	open   map[*localConn]struct{} // all, until they are closed
	idle   []*localConn            // the one that was used last at the end
	timer  *time.Timer             // runs expire at expiry; nil while nothing was idle
	expiry time.Time               // zero while nothing will expire
}

func newHop(target *url.URL, o *HTTPOptions, timeout time.Duration) *hop {
	h := &hop{dialContext: o.DialContext, addr: dialAddr(target), timeout: timeout, open: make(map[*localConn]struct{})}
	if h.dialContext == nil {
		h.dialContext = (&net.Dialer{}).DialContext
	}
	if target.Scheme == "https" {
		h.tls = tlsConfig(o.TLSClientConfig, target.Hostname())
	}
	return h
}

// take takes an idle connection, or nil. One that has been closed by the
// service meanwhile, or brings what nobody asked for, is not used.
func (h *hop) take(repeatable bool) *localConn {
	for {
		c, drop := h.pop(repeatable)
		if c == nil {
			return nil
		}
		if !drop && c.quiet() {
			return c
		}
		c.close()
	}
}

// pop takes the connection that was used last, if that may be used for such a
// request. drop says that it may not be used for any.
func (h *hop) pop(repeatable bool) (c *localConn, drop bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.idle)
	if n == 0 {
		return nil, false
	}
	c = h.idle[n-1]
	age := time.Since(c.idleSince)
	drop = age >= c.idleFor
	if !drop && !repeatable && !c.announced && age >= freshFor {
		return nil, false
	}
	h.idle[n-1] = nil
	h.idle = h.idle[:n-1]
	return c, drop
}

// put gives a connection back after a complete exchange. keeps is how long the
// service says that it keeps it, if announced.
func (h *hop) put(c *localConn, keeps time.Duration, announced bool) {
	c.idleSince, c.idleFor, c.announced = time.Now(), idleFor, announced
	if announced {
		c.idleFor = min(keeps-spareTime, idleFor)
	}
	if c.idleFor <= 0 || !h.keep(c) {
		c.close()
	}
}

func (h *hop) keep(c *localConn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.idle) >= maxIdle {
		return false
	}
	h.idle = append(h.idle, c)
	if end := c.idleSince.Add(c.idleFor); h.expiry.IsZero() || end.Before(h.expiry) {
		h.expireAtLocked(end)
	}
	return true
}

func (h *hop) expireAtLocked(end time.Time) {
	h.expiry = end
	if h.timer == nil {
		h.timer = time.AfterFunc(time.Until(end), h.expire)
	} else {
		h.timer.Reset(time.Until(end))
	}
}

// expire is called by timer: it closes the connections whose time is over.
func (h *hop) expire() {
	for _, c := range h.expired(time.Now()) {
		h.remove(c)
		_ = c.Conn.Close() // with a goodbye, where TLS has one
	}
}

func (h *hop) expired(now time.Time) []*localConn {
	h.mu.Lock()
	defer h.mu.Unlock()
	var over []*localConn
	var next time.Time
	h.idle = slices.DeleteFunc(h.idle, func(c *localConn) bool {
		end := c.idleSince.Add(c.idleFor)
		if !end.After(now) {
			over = append(over, c)
			return true
		}
		if next.IsZero() || end.Before(next) {
			next = end
		}
		return false
	})
	h.expiry = next
	if !next.IsZero() && !h.closed {
		h.expireAtLocked(next)
	}
	return over
}

// add takes a new connection into account, unless the hop is closed.
func (h *hop) add(c *localConn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.open[c] = struct{}{}
	return true
}

func (h *hop) remove(c *localConn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.open, c)
}

// close cuts all connections, those in use as well.
func (h *hop) close() {
	h.mu.Lock()
	h.closed = true
	if h.timer != nil {
		h.timer.Stop()
	}
	h.idle = nil
	open := make([]*localConn, 0, len(h.open))
	for c := range h.open {
		open = append(open, c)
	}
	h.mu.Unlock()
	for _, c := range open {
		c.close()
	}
}
