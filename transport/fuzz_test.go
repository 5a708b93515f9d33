package transport_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/dialback/dialback/transport"
)

// FuzzDecode: no text makes Decode panic, each error is one of the two, and
// what decodes is the same after another round. More seeds are in
// testdata/fuzz/FuzzDecode.
func FuzzDecode(f *testing.F) {
	for _, c := range frames {
		f.Add([]byte(c.text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		first, err := transport.Decode(text)
		if err != nil {
			if errors.Is(err, transport.ErrUnknownFrame) == errors.Is(err, transport.ErrMalformed) {
				t.Fatalf("Decode(%q) = %v, want it to be either ErrUnknownFrame or ErrMalformed", text, err)
			}
			return
		}
		again := transport.Encode(first)
		if len(again) > transport.MaxControlFrame {
			return // what is no UTF-8 grows to U+FFFD
		}
		second, err := transport.Decode(again)
		if err != nil || !reflect.DeepEqual(first, second) {
			t.Fatalf("%q decodes to\n%#v, which is encoded as\n%s, which decodes to\n%#v, %v", text, first, again, second, err)
		}
	})
}

// FuzzRoundTrip: whatever strings and numbers a valid frame has, they arrive.
func FuzzRoundTrip(f *testing.F) {
	f.Add(uint8(0), "n.r.m", "tcp", "/a%2Fb", "x=1&y=%20", uint64(1764451200000001), 503)
	f.Add(uint8(1), "t", "no such service\n", "", "", uint64(0), 404)
	f.Add(uint8(2), "GET", "/", "x-name", "caf\xe9", uint64(1), 200)
	f.Fuzz(func(t *testing.T, which uint8, a, b, c, d string, n uint64, status int) {
		raw := d // header values are bytes, not UTF-8
		a, b, c, d = utf8Text(a), utf8Text(b), utf8Text(c), utf8Text(d)
		a, b = "a"+a, "b"+b // some are required
		headers := map[string]string{c: raw, a: "x", "ascii": b}
		frames := []transport.Frame{
			transport.StreamDial{Ticket: a, Kind: b, Path: c, Query: d, Generation: n, Stream: b, Service: c, Proto: d},
			transport.Refuse{Ticket: c, Status: status, Reason: d},
			transport.Ack{Ticket: a},
			transport.StreamOpen{Stream: a, Service: c, Proto: b},
			transport.Cancel{Ticket: a},
			transport.Hello{Node: c, Generation: n},
			transport.Drain{ReconnectAfterMs: int64(n >> 1)},
			transport.HTTPRequest{Method: a, Path: b, Headers: headers},
			transport.HTTPResponse{Status: 100 + int(n%900), Headers: headers},
		}
		want := frames[int(which)%len(frames)]
		text := transport.Encode(want)
		if len(text) > transport.MaxControlFrame {
			return
		}
		got, err := transport.Decode(text)
		if err != nil {
			t.Fatalf("Decode(%s): %v", text, err)
		}
		if refusal, ok := want.(transport.Refuse); ok {
			wantClean(t, refusal, got.(transport.Refuse))
			return
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%s\n got %#v\nwant %#v", text, got, want)
		}
	})
}

func utf8Text(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

func wantClean(t *testing.T, sent, got transport.Refuse) {
	t.Helper()
	switch {
	case got.Ticket != sent.Ticket:
		t.Fatalf("ticket %q became %q", sent.Ticket, got.Ticket)
	case got.Status != sent.Status && got.Status != 502:
		t.Fatalf("status %d became %d", sent.Status, got.Status)
	case len(got.Reason) > 123 || strings.ContainsFunc(got.Reason, func(r rune) bool { return r < ' ' || r == 0x7f }):
		t.Fatalf("reason %q became %q, want at most 123 bytes without control characters", sent.Reason, got.Reason)
	}
}
