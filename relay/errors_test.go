package relay_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/transport"
)

// The one table: each error has a status, a code of its own, and a close code
// whose meaning is fixed.
func TestDescribe_Table(t *testing.T) {
	tests := []struct {
		err    error
		code   string
		status int
		close  transport.CloseCode
		retry  bool
	}{
		{relay.ErrHostOffline, "host_offline", 503, 1013, true},
		{relay.ErrHostGone, "host_gone", 503, 1013, true},
		{relay.ErrReplaced, "host_replaced", 503, 1013, true},
		{relay.ErrStoreUnavailable, "store_unavailable", 503, 1013, true},
		{relay.ErrDraining, "draining", 503, 1012, true},
		{relay.ErrClosed, "draining", 503, 1012, true},
		{relay.ErrNodeLimit, "node_limit", 503, 4429, true},
		{relay.ErrHostLimit, "host_limit", 429, 4429, true},
		{relay.ErrNoDialBack, "no_dial_back", 504, 4411, false},
		{relay.ErrRefused, "refused", 502, 4412, false},
		{relay.ErrStreamClosed, "stream_closed", 502, 4410, false},
		{relay.ErrBadAnswer, "bad_answer", 502, 4410, false},
		{relay.ErrHeaderTimeout, "header_timeout", 504, 4410, false},
		{relay.ErrUnauthorized, "unauthorized", 401, 4401, false},
		{relay.ErrForbidden, "forbidden", 403, 4403, false},
		{relay.ErrRevoked, "revoked", 403, 4403, false},
		{relay.ErrBadRequest, "bad_request", 400, 4400, false},
		{relay.ErrHostV2, "host_speaks_v2", 400, 4400, false},
		{relay.ErrBodyTooLarge, "body_too_large", 413, 4400, false},
		{errors.New("some secret"), "internal", 500, 1011, false},
		{context.Canceled, "client_gone", 499, 1001, false},
	}
	for _, tt := range tests {
		f := relay.Describe(fmt.Errorf("wrapped: %w", tt.err))
		if f.Code != tt.code || f.Status != tt.status || f.Close != tt.close || f.RetryAfter != tt.retry {
			t.Errorf("%v: %+v, want %+v", tt.err, f, tt)
		}
		if f.Message == "" || strings.Contains(f.Message, "secret") || strings.HasPrefix(f.Message, "relay:") {
			t.Errorf("%v: message %q", tt.err, f.Message)
		}
	}
}

func TestDescribe_RefusalKeepsStatusAndReason(t *testing.T) {
	f := relay.Describe(&relay.RefusedError{Status: 429, Reason: "busy"})
	if f.Status != 429 || !strings.Contains(f.Message, "busy") || f.Close != 4412 {
		t.Errorf("%+v", f)
	}
	for _, status := range []int{0, -1, 101, 200, 1000} {
		f := relay.Describe(fmt.Errorf("wrapped: %w", &relay.RefusedError{Status: status, Reason: "busy"}))
		if f.Status != 500 || f.Code != "internal" || f.Close != 1011 || f.RetryAfter || strings.Contains(f.Message, "busy") {
			t.Errorf("the status %d, which no refusal has: %+v, want an internal error", status, f)
		}
	}
	if d := relay.Describe(relay.Deny(relay.ErrForbidden, "not your host")); d.Status != 403 || d.Message != "not your host" {
		t.Errorf("%+v", d)
	}
}
