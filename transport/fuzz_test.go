package transport_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

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

// FuzzCutReason: whatever is said, it fits a close frame.
func FuzzCutReason(f *testing.F) {
	f.Add("short")
	f.Add(strings.Repeat("é", 62) + "x")
	f.Add("\xff\xfe")
	f.Fuzz(func(t *testing.T, s string) {
		got := transport.CutReason(s)
		if len(got) > 123 || !utf8.ValidString(got) || utf8.ValidString(s) && !strings.HasPrefix(s, got) || len(s) <= 123 && utf8.ValidString(s) && got != s {
			t.Fatalf("CutReason(%q) = %q", s, got)
		}
	})
}

// FuzzPassthrough: the bytes of a WebSocket pass as they are, and a close frame
// is put where a frame ends and nowhere else, in whatever pieces they come.
func FuzzPassthrough(f *testing.F) {
	f.Add([]byte{0x81, 3, 'a', 'b', 'c'}, uint8(1))
	f.Add(append([]byte{0x82, 126, 0, 200}, make([]byte, 200)...), uint8(7))
	f.Add([]byte{0x88, 0x80, 1, 2, 3, 4}, uint8(3))
	f.Add([]byte{0x82, 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 'x'}, uint8(2))
	f.Fuzz(func(t *testing.T, stream []byte, piece uint8) {
		var out bytes.Buffer
		p := transport.NewPassthrough(&out)
		for rest := stream; len(rest) > 0; {
			n := min(int(piece)+1, len(rest))
			if _, err := p.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if !bytes.Equal(out.Bytes(), stream) {
			t.Fatal("the bytes were changed")
		}
		boundary, closed := endsWithAFrame(stream)
		err := p.Close(4403, "revoked")
		if (err == nil) != (boundary && !closed) {
			t.Fatalf("Close after %x: %v; a frame has ended: %v, a close frame was sent: %v", stream, err, boundary, closed)
		}
		if got := out.Bytes()[len(stream):]; err == nil && string(got) != "\x88\x09\x11\x33revoked" || err != nil && len(got) > 0 {
			t.Fatalf("Close wrote %x", got)
		}
	})
}

// endsWithAFrame reads a stream of frames at once.
func endsWithAFrame(b []byte) (boundary, closed bool) {
	for len(b) > 0 {
		closed = closed || b[0]&0xF == 8
		if len(b) < 2 {
			return false, closed
		}
		size, n := 2, uint64(b[1]&0x7F)
		if n >= 126 {
			ext := 2 + int(n-126)*6
			if len(b) < 2+ext {
				return false, closed
			}
			n = 0
			for _, c := range b[2 : 2+ext] {
				n = n<<8 | uint64(c)
			}
			size += ext
		}
		if b[1]&0x80 != 0 {
			size += 4
		}
		if len(b) < size || uint64(len(b)-size) < n {
			return false, closed
		}
		b = b[size+int(n):]
	}
	return true, closed
}
