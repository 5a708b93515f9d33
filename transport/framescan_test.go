package transport_test

import (
	"encoding/binary"
	"testing"

	"github.com/dialback/dialback/transport"
)

// frameOf is a frame of n bytes of payload.
func frameOf(opcode byte, n int, masked bool) []byte {
	b := []byte{0x80 | opcode}
	var bit byte
	if masked {
		bit = 0x80
	}
	switch {
	case n < 126:
		b = append(b, bit|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, bit|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, bit|127), uint64(n))
	}
	if masked {
		b = append(b, 0x81, 0xFF, 0x88, 0x7E) // looks like headers
	}
	for i := range n {
		b = append(b, byte(0x80+i))
	}
	return b
}

// Wherever the stream is cut into pieces, every frame ends where it ends.
func TestFrameScan_FindsTheEndOfEveryFrame(t *testing.T) {
	var stream []byte
	var ends []int
	for _, masked := range []bool{false, true} {
		for _, n := range []int{0, 1, 125, 126, 127, 65535, 65536} {
			stream = append(stream, frameOf(2, n, masked)...)
			ends = append(ends, len(stream))
		}
	}
	for _, step := range []int{1, 2, 3, 7, 13, 1000, len(stream)} {
		var s transport.FrameScan
		var got []int
		for at := 0; at < len(stream); {
			piece := stream[at:min(len(stream), at+step)]
			for len(piece) > 0 {
				n := s.Advance(piece)
				if n <= 0 || n > len(piece) {
					t.Fatalf("step %d: Advance of %d bytes = %d", step, len(piece), n)
				}
				if n < len(piece) && !s.AtBoundary() {
					t.Fatalf("step %d: Advance stopped at %d, inside a frame", step, at+n)
				}
				at, piece = at+n, piece[n:]
				if s.AtBoundary() {
					got = append(got, at)
				}
			}
		}
		if len(got) != len(ends) {
			t.Fatalf("step %d: found %d frames, want %d", step, len(got), len(ends))
		}
		for i := range ends {
			if got[i] != ends[i] {
				t.Fatalf("step %d: frame %d ends at %d, want %d", step, i, got[i], ends[i])
			}
		}
		if s.Closed() {
			t.Errorf("step %d: a close frame was seen where there is none", step)
		}
	}
}

func TestFrameScan_SeesACloseFrame(t *testing.T) {
	var s transport.FrameScan
	for _, f := range [][]byte{frameOf(1, 3, true), frameOf(9, 0, true), frameOf(10, 4, false)} {
		s.Advance(f)
		if s.Closed() {
			t.Fatalf("frame %#x taken for a close frame", f[0])
		}
	}
	f := frameOf(8, 2, true)
	s.Advance(f[:1])
	if !s.Closed() || s.AtBoundary() {
		t.Error("the begin of a close frame was not seen")
	}
	s.Advance(f[1:])
	if !s.AtBoundary() {
		t.Error("the end of a close frame was not seen")
	}
}
