package relay

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/dialback/dialback/transport"
)

// exchange opens a data socket and sends out over it. The response's body must
// be closed; the socket ends with it. On 101 the body is an io.ReadWriteCloser.
// The end of ctx ends the exchange.
func (s *Server) exchange(ctx context.Context, st *stream, t Target, out *outbound) (*http.Response, error) {
	conn, att, err := s.open(ctx, st.hub, st.id, httpSpec(t, out))
	if err != nil {
		return nil, err
	}
	st.opened(att)
	if out.begin != nil {
		out.begin()
	}
	if att.Proto < 3 {
		return s.exchangeV2(ctx, conn, out)
	}
	return s.exchangeHTTP(ctx, conn, out)
}

// headerTimer bounds the wait for an answer. It starts when the request is
// written.
type headerTimer struct {
	limit time.Duration
	cut   func()
	t     atomic.Pointer[time.Timer]
	fired atomic.Bool
	over  atomic.Bool
}

func (h *headerTimer) start() {
	if h.limit <= 0 || h.over.Load() {
		return
	}
	h.t.Store(time.AfterFunc(h.limit, func() {
		if !h.over.Load() {
			h.fired.Store(true)
			h.cut()
		}
	}))
}

func (h *headerTimer) stop() {
	h.over.Store(true)
	if t := h.t.Load(); t != nil {
		t.Stop()
	}
}

// whyNoAnswer is the typed error for an exchange whose answer did not come.
func whyNoAnswer(ctx context.Context, out *outbound, timer *headerTimer, otherwise error) error {
	switch {
	case timer.fired.Load():
		return ErrHeaderTimeout
	case out.upload.failed() != nil:
		return uploadError(out.upload.failed())
	case ctx.Err() != nil:
		return openEnded(ctx)
	}
	return otherwise
}

// keepData keeps a data socket of a long exchange alive by protocol pings. The
// goroutine begins only when the exchange has lasted for one interval.
func (s *Server) keepData(conn transport.Conn, waiting func() bool) (stop func()) {
	t := time.AfterFunc(s.cfg.DataPing, func() {
		s.spawn(func() { s.keepalive(conn, waiting) })
	})
	return func() { t.Stop() }
}
