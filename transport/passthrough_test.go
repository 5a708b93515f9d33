package transport_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/dialback/dialback/transport"
)

func TestPassthrough_ClosesOnlyBetweenFrames(t *testing.T) {
	text := []byte{0x81, 3, 'a', 'b', 'c'}
	long := append([]byte{0x82, 126, 0x01, 0x00}, make([]byte, 256)...)
	closing := []byte{0x88, 2, 0x03, 0xE8}
	tests := []struct {
		name string
		sent []byte
		ok   bool
	}{
		{"nothing sent", nil, true},
		{"after a frame", text, true},
		{"after two", append(bytes.Clone(text), long...), true},
		{"in a header", text[:1], false},
		{"in a payload", text[:4], false},
		{"in a long header", long[:3], false},
		{"in a long payload", long[:200], false},
		{"after a close frame", closing, false},
	}
	for _, tt := range tests {
		for _, piece := range []int{1, 3, 1000} {
			var out bytes.Buffer
			p := transport.NewPassthrough(&out)
			for rest := tt.sent; len(rest) > 0; {
				n := min(piece, len(rest))
				p.Write(rest[:n])
				rest = rest[n:]
			}
			if !bytes.Equal(out.Bytes(), tt.sent) {
				t.Fatalf("%s: the bytes were changed", tt.name)
			}
			err := p.Close(4403, "revoked")
			want := bytes.Clone(tt.sent)
			if tt.ok {
				want = append(want, append([]byte{0x88, 9, 0x11, 0x33}, "revoked"...)...)
			}
			if tt.ok != (err == nil) || !tt.ok && !errors.Is(err, transport.ErrMidFrame) || !bytes.Equal(out.Bytes(), want) {
				t.Errorf("%s, in pieces of %d: %v, sent % x", tt.name, piece, err, out.Bytes()[len(tt.sent):])
			}
			if p.Close(4403, "") == nil {
				t.Errorf("%s: a second close frame was sent", tt.name)
			}
		}
	}
}
