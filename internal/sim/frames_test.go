package sim

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// wireFrame is a frame as it is sent, with a key if it is masked.
func wireFrame(op byte, masked bool, payload []byte) []byte {
	b := []byte{0x80 | op}
	flag := byte(0)
	if masked {
		flag = 0x80
	}
	switch n := len(payload); {
	case n < 126:
		b = append(b, flag|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, flag|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, flag|127), uint64(n))
	}
	if !masked {
		return append(b, payload...)
	}
	key := []byte{1, 2, 3, 4}
	b = append(b, key...)
	for i, c := range payload {
		b = append(b, c^key[i%4])
	}
	return b
}

// Frames are taken apart whatever the pieces are in which they come.
func TestFrameParser(t *testing.T) {
	big := bytes.Repeat([]byte("x"), 70_000)
	for _, masked := range []bool{false, true} {
		var all []byte
		want := []message{
			{1, []byte(`{"type":"ping"}`), 15}, {9, nil, 0}, {2, bytes.Repeat([]byte("y"), 200), 200},
			{2, big[:keptPayload], len(big)}, {0, []byte("rest"), 4}, {8, []byte{3, 0xe8}, 2},
		}
		for _, m := range want {
			payload := m.payload
			if m.size > len(payload) {
				payload = big
			}
			all = append(all, wireFrame(m.op, masked, payload)...)
		}
		for _, piece := range []int{1, 2, 3, 7, 1000, len(all)} {
			var fp frameParser
			var got []message
			for at := 0; at < len(all); at += piece {
				fp.parse(all[at:min(len(all), at+piece)], func(m message) { got = append(got, m) })
			}
			if len(got) != len(want) {
				t.Fatalf("masked %v, pieces of %d: %d frames, want %d", masked, piece, len(got), len(want))
			}
			for i, m := range got {
				if m.op != want[i].op || m.size != want[i].size || !bytes.Equal(m.payload, want[i].payload) {
					t.Errorf("masked %v, pieces of %d: frame %d is op %d of %d bytes %.20q, want op %d of %d bytes %.20q",
						masked, piece, i, m.op, m.size, m.payload, want[i].op, want[i].size, want[i].payload)
				}
			}
		}
	}
}
