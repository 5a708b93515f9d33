package transport

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// CloseCode says why a WebSocket ended (RFC 6455, section 7.4).
//
// The ranges, who may send them, and what they mean for an agent whose control
// socket ended so:
//
//	1000-1003, 1007-1014  either side; the meanings of RFC 6455
//	1005                  either side, as an empty close frame
//	1006, 1015            nobody: a local name for an end without a frame
//	3000-3999             libraries and frameworks; passed on, never sent first
//	4400-4499             the relay; the meanings below, fixed for good, so that
//	                      nobody infers behaviour from the text of a reason
//	4000-4999, others     applications; passed on, never sent first
//
// Retryable says which of them an agent answers by connecting again.
type CloseCode int

const (
	CloseNormal        CloseCode = 1000 // a clean end, and nothing else
	CloseGoingAway     CloseCode = 1001 // the endpoint goes away: reconnect
	CloseProtocolError CloseCode = 1002 // the peer broke the WebSocket protocol
	CloseUnsupported   CloseCode = 1003 // a message of a type that has no place here
	CloseNoStatus      CloseCode = 1005 // an empty close frame
	CloseAbnormal      CloseCode = 1006 // no close frame; never on the wire
	CloseTooBig        CloseCode = 1009 // a message above the ReadLimit
	CloseInternal      CloseCode = 1011 // an error of the endpoint that closes
	CloseRestart       CloseCode = 1012 // node restarting or draining: reconnect
	CloseOffline       CloseCode = 1013 // host offline, on /connect

	CloseBadRequest   CloseCode = 4400 // fix the caller
	CloseUnauthorized CloseCode = 4401 // credentials missing or expired: mint a fresh token, reconnect
	CloseForbidden    CloseCode = 4403 // forbidden or revoked: retry slowly
	CloseUnknown      CloseCode = 4404 // unknown stream: give it up
	CloseStale        CloseCode = 4408 // stale host: reconnect now
	CloseReplaced     CloseCode = 4409 // a newer socket took over
	CloseDataAbnormal CloseCode = 4410 // the host's data socket ended abnormally: this stream is dead
	CloseNoDialBack   CloseCode = 4411 // the host did not dial back in time
	CloseRefused      CloseCode = 4412 // refused by the host
	CloseLimit        CloseCode = 4429 // limit reached
)

// Sendable reports whether c can be sent in a close frame. CloseNoStatus can:
// as a frame without a code. Close replaces a code that cannot be sent by
// CloseInternal.
func (c CloseCode) Sendable() bool {
	switch {
	case c >= 1000 && c <= 1003, c == CloseNoStatus, c >= 1007 && c <= 1014:
		return true
	default:
		return c >= 3000 && c <= 4999
	}
}

// Retryable reports whether an agent whose control socket the relay closed
// with c should connect again by itself. How soon is the agent's to decide,
// with one rule: a second failure in a row backs off, whatever the code.
//
// Not retryable is what would end the same way again: a caller that must be
// fixed first (CloseBadRequest, CloseUnknown), a violation of the protocol
// (CloseProtocolError, CloseUnsupported, 1007-1010) and a code that only ends
// streams (CloseDataAbnormal, CloseNoDialBack, CloseRefused). A code that is
// not known is retryable: to stay away for ever is the worse mistake.
func (c CloseCode) Retryable() bool {
	switch c {
	case CloseBadRequest, CloseUnknown,
		CloseProtocolError, CloseUnsupported, 1007, 1008, CloseTooBig, 1010,
		CloseDataAbnormal, CloseNoDialBack, CloseRefused:
		return false
	}
	return true
}

// maxCloseReason is what a close frame holds beside its code, in bytes.
const maxCloseReason = 123

// CutReason makes s fit to be the reason of a close frame: valid UTF-8, at
// most 123 bytes, cut at the end of a rune.
func CutReason(s string) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if len(s) <= maxCloseReason {
		return s
	}
	n := maxCloseReason
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// sendable turns what the caller of Close gave into what goes on the wire.
func sendable(code CloseCode, reason string) (CloseCode, string) {
	if !code.Sendable() {
		code = CloseInternal
	}
	if code == CloseNoStatus {
		return code, ""
	}
	return code, CutReason(reason)
}

// CloseError is how a connection ended.
type CloseError struct {
	Code   CloseCode
	Reason string // a placeholder where the peer quoted credentials: see Dial
	Remote bool   // the peer closed it; else this side did
	Err    error  // the cause of an abnormal end (ErrStalled, a network error); may be nil
}

// Error tells code, reason and cause.
func (e *CloseError) Error() string {
	side := "closed"
	if e.Remote {
		side = "closed by the peer"
	}
	s := fmt.Sprintf("transport: %s with %d", side, e.Code)
	if e.Reason != "" {
		s += fmt.Sprintf(" %q", e.Reason)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns Err.
func (e *CloseError) Unwrap() error { return e.Err }

// CloseCodeOf returns the code of the CloseError in err, and CloseAbnormal if
// there is none.
func CloseCodeOf(err error) CloseCode {
	var e *CloseError
	if errors.As(err, &e) {
		return e.Code
	}
	return CloseAbnormal
}
