package relay

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/transport"
	"github.com/google/uuid"
)

// exchange sends out to a service of the host and returns its response, whose
// body must be closed. The end of ctx ends the exchange. On 101 the body is an
// io.ReadWriteCloser.
//
// A request to an agent takes an idle stream if there is one, and a fresh one
// else. One that cannot have reached the service, or that may be sent twice, is
// sent again, on a fresh stream the second time at the latest.
func (s *Server) exchange(ctx context.Context, st *stream, t Target, out *outbound) (*http.Response, error) {
	defer out.keepBody(s.cfg.ReplayBuffer, &s.stats.replayBytes)()
	if hs := s.takeIdle(ctx, st.hub, t); hs != nil {
		s.started(out)
		resp, again, err := s.exchangeIdle(ctx, hs, out)
		if err == nil || !again || ctx.Err() != nil || !out.rewind(ctx, s.cfg.DialTimeout) {
			return resp, err
		}
		s.stats.replays.Add(1)
	}
	id := st.id
	for spares := true; ; spares = false {
		data, err := s.openBy(ctx, st.hub, id, httpSpec(t, out), spares)
		if err == nil && !out.repeatable() {
			err = data.await(ctx) // not a byte before the agent is known to be there
		}
		if err != nil {
			return nil, err
		}
		s.started(out)
		if data.att.Proto < 3 {
			out.path, out.query = inURL(out.path), inURL(out.query)
			return s.exchangeV2(ctx, data.conn, out)
		}
		hs := s.newHTTPStream(data, st.hub, t.Service)
		resp, err := s.exchangeHTTP(ctx, hs, out, provenFor)
		if err == nil || data.opening == nil || hs.got.Load() || ctx.Err() != nil || !lostWithSpare(err) || !out.rewind(ctx, s.cfg.DialTimeout) {
			return resp, err
		}
		s.stats.replays.Add(1)
		id = uuid.NewString() // the agent opens none twice
	}
}

// lostWithSpare reports whether err means that a stream on a spare was lost
// without an answer of the agent, so that a request which may be sent twice is
// worth another dial.
func lostWithSpare(err error) bool { return err == ErrStreamClosed || err == errOtherProcess }

// started is called when the host is there, before the body is read.
func (s *Server) started(out *outbound) {
	if out.begin != nil {
		out.begin()
		out.begin = nil
	}
}

// takeIdle takes an idle stream of the host's current socket, as the Store has
// named it within the last second; nil if there is none.
func (s *Server) takeIdle(ctx context.Context, h *hub, t Target) *httpStream {
	if h.pool.empty() {
		return nil
	}
	socket, ok := h.pool.socket(time.Now())
	if !ok {
		att, err := s.current(ctx, h)
		socket = att.Ref()
		if err != nil {
			here := h.here()
			if errors.Is(err, store.ErrNotFound) || s.cfg.StoreOutage != ServeLocal || here == nil || !here.fresh() {
				return nil
			}
			socket = here.att.Ref() // the stated weakening of I1
		}
	}
	return h.pool.take(t.Service, socket)
}

// exchangeIdle uses a stream that was idle. again says that the request has
// failed and may be sent once more.
func (s *Server) exchangeIdle(ctx context.Context, hs *httpStream, out *outbound) (resp *http.Response, again bool, err error) {
	proveAfter := provenFor
	if time.Since(hs.idleSince) >= provenFor {
		if out.body == nil && out.mayRepeat() {
			proveAfter = 0 // the proof goes along with the request
		} else if hs.ahead == nil && !hs.watch() || !hs.prove(ctx) {
			// Not a byte before the proof: a dead stream has not seen the request.
			hs.cut()
			if ctx.Err() != nil {
				return nil, false, openEnded(ctx)
			}
			return nil, true, ErrStreamClosed
		}
	}
	resp, err = s.exchangeHTTP(ctx, hs, out, proveAfter)
	unanswered := err != nil && !hs.got.Load() && !errors.Is(err, ErrHeaderTimeout) // a service that is slow is so again
	return resp, unanswered && out.repeatable(), err
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
		return exchangeEnded(ctx)
	}
	return otherwise
}

// exchangeEnded is the typed error for the end of an exchange's context. The
// service may have the request by then: an error that says it has not reached
// it, as those of an open do, would have it sent twice.
func exchangeEnded(ctx context.Context) error {
	err := openEnded(ctx)
	switch {
	case errors.Is(err, ErrDraining), errors.Is(err, ErrClosed):
		return Deny(ErrStreamClosed, "this node stopped before the answer came")
	case errors.Is(err, ErrNoDialBack): // the caller's own deadline
		return errClientGone
	}
	return err
}

// keepData keeps a data socket of a long exchange alive by protocol pings. The
// goroutine begins only when the exchange has lasted for one interval.
func (s *Server) keepData(conn transport.Conn, waiting func() bool) (stop func()) {
	t := time.AfterFunc(s.cfg.DataPing, func() {
		s.spawn(func() { s.keepalive(conn, waiting) })
	})
	return func() { t.Stop() }
}
