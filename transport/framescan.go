package transport

import "encoding/binary"

// opcodes of control frames (RFC 6455, section 5.5).
const (
	opClose = 0x8
	opPing  = 0x9
	opPong  = 0xA
)

// frameScan follows a byte stream of WebSocket frames and knows where frames
// end. The zero value stands at a boundary.
type frameScan struct {
	header [14]byte
	have   int    // bytes of header seen; 0 at a boundary
	left   uint64 // bytes of payload to come, once the header is complete
	inBody bool
	closed bool // a close frame has begun: nothing may follow it
}

// atBoundary reports whether the next byte begins a frame.
func (s *frameScan) atBoundary() bool { return s.have == 0 && !s.inBody }

// advance consumes p up to the end of the current frame, at most, and returns
// how many bytes that are.
func (s *frameScan) advance(p []byte) int {
	n := 0
	for !s.inBody {
		if n == len(p) {
			return n
		}
		s.header[s.have] = p[n]
		s.have++
		n++
		if s.have == 1 && s.header[0]&0xF == opClose {
			s.closed = true
		}
		s.finishHeader()
		if s.have == 0 { // a frame without payload
			return n
		}
	}
	k := min(uint64(len(p)-n), s.left)
	s.left -= k
	if s.left == 0 {
		s.inBody, s.have = false, 0
	}
	return n + int(k)
}

// finishHeader enters the payload if the header is complete.
func (s *frameScan) finishHeader() {
	if s.have < 2 {
		return
	}
	size := 2
	length := uint64(s.header[1] & 0x7F)
	switch length {
	case 126:
		size += 2
	case 127:
		size += 8
	}
	ext := size
	if s.header[1]&0x80 != 0 {
		size += 4
	}
	if s.have < size {
		return
	}
	switch length {
	case 126:
		length = uint64(binary.BigEndian.Uint16(s.header[2:ext]))
	case 127:
		length = binary.BigEndian.Uint64(s.header[2:ext])
	}
	s.left = length
	s.inBody = length > 0
	if !s.inBody {
		s.have = 0
	}
}
