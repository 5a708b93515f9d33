package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"syscall"

	"github.com/dialback/dialback/transport"
)

var (
	// ErrRunning is the error of a Run while another one runs.
	ErrRunning = errors.New("agent: already running")
	// ErrSilent ends a control socket that brought nothing for SilenceTimeout.
	ErrSilent = errors.New("agent: relay silent")
	// ErrOverflow ends a control socket that takes no frames.
	ErrOverflow = errors.New("agent: control socket takes no frames")
	// ErrToken is wrapped by the error of an attempt without credentials: the
	// Token func failed, panicked, ended its goroutine, or did not return within
	// TokenTimeout.
	ErrToken = errors.New("agent: no token")
)

// errCanceled is the cause of a dial's context when the relay has taken the
// dial back: its client left.
var errCanceled = errors.New("agent: dial canceled")

// errOpenPanicked is the failure of a service whose DialContext panicked.
var errOpenPanicked = errors.New("agent: opening the service panicked")

// refusal is why a dial is not answered with a stream. The relay passes status
// and reason on, so the reason names the service and no address.
type refusal struct {
	status int
	reason string
}

func (r *refusal) Error() string { return r.reason }

func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status: status, reason: fmt.Sprintf(format, args...)}
}

// errStreamID is the refusal of a stream whose ID is too long to be remembered.
var errStreamID = refuse(http.StatusBadGateway, "the stream's ID has more than %d bytes", maxStreamID)

// asRefusal makes any failure to open a service a refusal.
func asRefusal(err error) *refusal {
	var r *refusal
	if errors.As(err, &r) {
		return r
	}
	return refuse(http.StatusBadGateway, "service failed")
}

// serviceDown is the refusal of a service that cannot be dialed.
func serviceDown(name string, err error) *refusal {
	if name == "" {
		return refuse(http.StatusBadGateway, "service down: %s", dialFailure(err))
	}
	return refuse(http.StatusBadGateway, "service %q down: %s", name, dialFailure(err))
}

// dialFailure says why a local dial failed without saying where to.
func dialFailure(err error) string {
	var dns *net.DNSError
	var down *dialError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), isTimeout(err):
		return "timed out"
	case errors.As(err, &down) && down.tls:
		return "TLS handshake failed"
	case errors.As(err, &dns):
		return "unknown name"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, os.ErrNotExist):
		return "no such socket"
	}
	return "unreachable"
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// denied reports what the relay answered instead of a control socket, as the
// close code that means the same.
func denied(status int) transport.CloseCode {
	switch status {
	case http.StatusBadRequest:
		return transport.CloseBadRequest
	case http.StatusUnauthorized:
		return transport.CloseUnauthorized
	case http.StatusForbidden:
		return transport.CloseForbidden
	case http.StatusTooManyRequests:
		return transport.CloseLimit
	case http.StatusServiceUnavailable:
		return transport.CloseRestart
	}
	return transport.CloseAbnormal
}
