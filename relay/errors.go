package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"

	"github.com/dialback/dialback/transport"
)

// The ways in which an open, an exchange or a stream fails. Each has a status,
// a JSON code, a close code and a log level in one table; see Describe.
var (
	ErrHostOffline      = errors.New("relay: host offline")
	ErrHostGone         = errors.New("relay: host went away while it was dialed")
	ErrReplaced         = errors.New("relay: host was replaced again and again while it was dialed")
	ErrStoreUnavailable = errors.New("relay: store unavailable")
	ErrDraining         = errors.New("relay: node is draining")
	ErrNodeLimit        = errors.New("relay: node limit reached")
	ErrHostLimit        = errors.New("relay: limit of this host reached")
	ErrNodeUnreachable  = errors.New("relay: the host's node does not answer")
	ErrNoDialBack       = errors.New("relay: host did not dial back in time")
	ErrRefused          = errors.New("relay: refused by the host")
	ErrStreamClosed     = errors.New("relay: data socket closed before the answer was complete")
	ErrHeaderTimeout    = errors.New("relay: no answer from the host's service in time")
	ErrUnauthorized     = errors.New("relay: credentials missing or expired")
	ErrForbidden        = errors.New("relay: forbidden")
	ErrRevoked          = errors.New("relay: revoked")
	ErrBadRequest       = errors.New("relay: bad request")
	ErrHostV2           = errors.New("relay: host speaks v2, which has no byte streams")
	ErrBodyTooLarge     = errors.New("relay: request body too large")
	ErrBadAnswer        = errors.New("relay: the host's answer is not HTTP, or its header is too large")
	ErrClosed           = errors.New("relay: server closed")

	// errOtherProcess: what was written may have reached the host's former
	// process, and is not sent to another one.
	errOtherProcess error = &Denial{Err: ErrStreamClosed, Reason: "host was replaced by another process when the stream may have begun"}
	// errClientGone: the client left first. Nobody is there to be told.
	errClientGone = errors.New("relay: client went away")
)

// RefusedError is a host's refusal in its own words. errors.Is finds ErrRefused.
type RefusedError struct {
	Status int    // 403, 404, 429, 503, else 502
	Reason string // cleaned: at most 123 bytes, no control characters
}

func (e *RefusedError) Error() string {
	if e.Reason == "" {
		return ErrRefused.Error()
	}
	return ErrRefused.Error() + ": " + e.Reason
}

func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// Failure is what the outside is told of an error.
type Failure struct {
	Code       string // of the JSON body
	Status     int    // of the HTTP answer
	Close      transport.CloseCode
	RetryAfter bool // the answer carries Retry-After
	Level      slog.Level
	Message    string // never holds a token, a ticket or an address
}

// failures is the one table of this package: error, code, status, close code,
// Retry-After, log level. The first row that errors.Is finds wins.
var failures = []struct {
	err        error
	code       string
	status     int
	close      transport.CloseCode
	retryAfter bool
	level      slog.Level
}{
	{ErrHostOffline, "host_offline", 503, transport.CloseOffline, true, slog.LevelDebug},
	{ErrHostGone, "host_gone", 503, transport.CloseOffline, true, slog.LevelInfo},
	{ErrReplaced, "host_replaced", 503, transport.CloseOffline, true, slog.LevelWarn},
	{ErrStoreUnavailable, "store_unavailable", 503, transport.CloseOffline, true, slog.LevelWarn},
	{ErrDraining, "draining", 503, transport.CloseRestart, true, slog.LevelDebug},
	{ErrClosed, "draining", 503, transport.CloseRestart, true, slog.LevelDebug},
	{ErrNodeLimit, "node_limit", 503, transport.CloseLimit, true, slog.LevelWarn},
	{ErrHostLimit, "host_limit", 429, transport.CloseLimit, true, slog.LevelWarn},
	{ErrNodeUnreachable, "node_unreachable", 503, transport.CloseOffline, true, slog.LevelWarn},
	{ErrNoDialBack, "no_dial_back", 504, transport.CloseNoDialBack, false, slog.LevelInfo},
	{ErrRefused, "refused", 502, transport.CloseRefused, false, slog.LevelInfo},
	{ErrStreamClosed, "stream_closed", 502, transport.CloseDataAbnormal, false, slog.LevelInfo},
	{ErrBadAnswer, "bad_answer", 502, transport.CloseDataAbnormal, false, slog.LevelInfo},
	{ErrHeaderTimeout, "header_timeout", 504, transport.CloseDataAbnormal, false, slog.LevelInfo},
	{ErrRevoked, "revoked", 403, transport.CloseForbidden, false, slog.LevelInfo},
	{ErrUnauthorized, "unauthorized", 401, transport.CloseUnauthorized, false, slog.LevelDebug},
	{ErrForbidden, "forbidden", 403, transport.CloseForbidden, false, slog.LevelDebug},
	{ErrHostV2, "host_speaks_v2", 400, transport.CloseBadRequest, false, slog.LevelInfo},
	{ErrBodyTooLarge, "body_too_large", 413, transport.CloseBadRequest, false, slog.LevelInfo},
	{ErrBadRequest, "bad_request", 400, transport.CloseBadRequest, false, slog.LevelDebug},
	{errClientGone, "client_gone", 499, transport.CloseGoingAway, false, slog.LevelDebug},
}

// Describe says what the outside is told of err, which is one of this
// package's or wraps one. An error that is not known is an internal error (500),
// and so is a RefusedError with a Status that no refusal has.
func Describe(err error) Failure {
	internal := Failure{"internal", 500, transport.CloseInternal, false, slog.LevelError, "internal error"}
	var refused *RefusedError
	if errors.As(err, &refused) && !slices.Contains([]int{403, 404, 429, 502, 503}, refused.Status) {
		return internal
	}
	for _, row := range failures {
		if !errors.Is(err, row.err) {
			continue
		}
		f := Failure{row.code, row.status, row.close, row.retryAfter, row.level, row.err.Error()[len("relay: "):]}
		if refused != nil {
			f.Status = refused.Status
			if refused.Reason != "" {
				f.Message = "refused by the host: " + refused.Reason
			}
		}
		var d *Denial
		if errors.As(err, &d) && d.Reason != "" {
			f.Message = d.Reason
		}
		return f
	}
	if errors.Is(err, context.Canceled) {
		return Describe(errClientGone)
	}
	return internal
}

// badRequest wraps ErrBadRequest with what is wrong.
func badRequest(format string, args ...any) error {
	return &Denial{Err: ErrBadRequest, Reason: fmt.Sprintf(format, args...)}
}

// writeError answers a plain request with err.
func (s *Server) writeError(w http.ResponseWriter, r *http.Request, hostID string, err error) {
	f := s.report(r.Context(), hostID, err)
	dropBody(w, r)
	h := w.Header()
	for _, k := range []string{"Content-Length", "Content-Encoding", "Etag", "Last-Modified"} {
		delete(h, k) // the embedder's, of another body
	}
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Dialback-Error", f.Code)
	if f.RetryAfter {
		h.Set("Retry-After", s.retryAfter())
	}
	if f.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	s.boundReply(w)
	w.WriteHeader(f.Status)
	if r.Method != http.MethodHead {
		w.Write(errorBody(f))
	}
}

func (s *Server) retryAfter() string {
	return strconv.FormatInt(int64(math.Ceil(s.cfg.RetryAfter.Seconds())), 10)
}

func errorBody(f Failure) []byte {
	b, _ := json.Marshal(map[string]any{"error": map[string]string{"code": f.Code, "message": f.Message}})
	return append(b, '\n')
}

// report counts and logs err, once for each failed open, exchange or stream.
func (s *Server) report(ctx context.Context, hostID string, err error) Failure {
	f := Describe(err)
	s.stats.failed(f.Code)
	if s.log.Enabled(ctx, f.Level) {
		s.log.LogAttrs(ctx, f.Level, "failed", slog.String("host", hostID), slog.String("code", f.Code), slog.String("reason", f.Message))
	}
	if h := s.cfg.Hooks.Failed; h != nil {
		h(hostID, err)
	}
	return f
}
