package transport_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dialback/dialback/transport"
)

func TestCloseCode_WhoMaySendAndWhoComesBack(t *testing.T) {
	for _, c := range []struct {
		code      transport.CloseCode
		sendable  bool
		retryable bool
		why       string
	}{
		{0, false, true, "no code at all"},
		{999, false, true, "below the range"},
		{1000, true, true, "a clean end says nothing against coming back"},
		{1001, true, true, "the endpoint goes away"},
		{1002, true, false, "the same bytes would break the protocol again"},
		{1003, true, false, "the same message would be refused again"},
		{1004, false, true, "reserved"},
		{1005, true, true, "an empty close frame"},
		{1006, false, true, "the connection was lost"},
		{1007, true, false, "the same text would be refused again"},
		{1008, true, false, "a policy stands"},
		{1009, true, false, "the same message would be too big again"},
		{1010, true, false, "an extension is missing for good"},
		{1011, true, true, "the other side failed"},
		{1012, true, true, "node restarting"},
		{1013, true, true, "try again later"},
		{1014, true, true, "bad gateway"},
		{1015, false, true, "a local name for a failed TLS handshake"},
		{1016, false, true, "not assigned"},
		{2999, false, true, "reserved for extensions"},
		{3000, true, true, "libraries"},
		{3999, true, true, "libraries"},
		{4400, true, false, "fix the caller"},
		{4401, true, true, "mint a fresh token"},
		{4403, true, true, "retry slowly"},
		{4404, true, false, "give it up"},
		{4408, true, true, "reconnect now"},
		{4409, true, true, "once, to find out who is newer"},
		{4410, true, false, "this stream is dead"},
		{4411, true, false, "this stream is dead"},
		{4412, true, false, "this stream is dead"},
		{4429, true, true, "later"},
		{4999, true, true, "applications"},
		{5000, false, true, "above the range"},
	} {
		if got := c.code.Sendable(); got != c.sendable {
			t.Errorf("CloseCode(%d).Sendable() = %v, want %v: %s", c.code, got, c.sendable, c.why)
		}
		if got := c.code.Retryable(); got != c.retryable {
			t.Errorf("CloseCode(%d).Retryable() = %v, want %v: %s", c.code, got, c.retryable, c.why)
		}
	}
}

func TestCutReason(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"empty", "", ""},
		{"fits", strings.Repeat("a", 123), strings.Repeat("a", 123)},
		{"one too many", strings.Repeat("a", 124), strings.Repeat("a", 123)},
		{"between runes", strings.Repeat("a", 121) + "ä", strings.Repeat("a", 121) + "ä"},
		{"inside a rune", strings.Repeat("a", 122) + "ä", strings.Repeat("a", 122)},
		{"inside a long rune", strings.Repeat("a", 120) + "😀", strings.Repeat("a", 120)},
		{"not UTF-8", "a\xff\xfeb", "a\uFFFDb"},
		{"grows by being made valid", strings.Repeat("\xffa", 61), strings.Repeat("\uFFFDa", 30) + "\uFFFD"},
	} {
		got := transport.CutReason(c.in)
		if got != c.want {
			t.Errorf("%s: CutReason(%q) = %q, want %q", c.name, c.in, got, c.want)
		}
		if len(got) > 123 || !utf8.ValidString(got) {
			t.Errorf("%s: CutReason(%q) = %q does not fit a close frame", c.name, c.in, got)
		}
	}
}

func TestCloseError(t *testing.T) {
	cause := errors.New("cable cut")
	e := &transport.CloseError{Code: 1006, Remote: true, Err: cause}
	wrapped := fmt.Errorf("read: %w", e)
	if !errors.Is(wrapped, cause) {
		t.Error("a CloseError does not lead to its cause")
	}
	if got, want := e.Error(), "transport: closed by the peer with 1006: cable cut"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
	if got, want := (&transport.CloseError{Code: 4409, Reason: "newer"}).Error(), `transport: closed with 4409 "newer"`; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
	for _, c := range []struct {
		err  error
		want transport.CloseCode
	}{
		{wrapped, transport.CloseAbnormal},
		{fmt.Errorf("x: %w", &transport.CloseError{Code: 4409}), 4409},
		{io.EOF, transport.CloseAbnormal},
		{nil, transport.CloseAbnormal},
	} {
		if got := transport.CloseCodeOf(c.err); got != c.want {
			t.Errorf("CloseCodeOf(%v) = %d, want %d", c.err, got, c.want)
		}
	}
}
