package sim

import "encoding/binary"

// keptPayload is how much of a message the observers look at.
const keptPayload = 1 << 10

// message is what an observer sees of one WebSocket frame.
type message struct {
	op      byte // RFC 6455: 1 text, 2 binary, 8 close, 9 ping, 10 pong, 0 continuation
	payload []byte
	size    int // of the whole payload
}

// frameParser takes the bytes of one direction of a WebSocket apart, piece by
// piece as they come.
type frameParser struct {
	head    []byte
	mask    [4]byte
	masked  bool
	left    int // of the payload
	at      int // in the payload
	current message
}

// parse calls f for each frame that is complete with p.
func (fp *frameParser) parse(p []byte, f func(message)) {
	for len(p) > 0 || fp.left == 0 && fp.current.op != 0 {
		if fp.current.op == 0 {
			fp.head = append(fp.head, p[0])
			p = p[1:]
			if !fp.begin() {
				continue
			}
		}
		n := min(fp.left, len(p))
		for i, c := range p[:n] {
			if len(fp.current.payload) == keptPayload {
				break
			}
			if fp.masked {
				c ^= fp.mask[(fp.at+i)%4]
			}
			fp.current.payload = append(fp.current.payload, c)
		}
		fp.at += n
		fp.left -= n
		p = p[n:]
		if fp.left > 0 {
			return
		}
		m := fp.current
		m.op &= 0x0f
		fp.current, fp.head = message{}, fp.head[:0]
		f(m)
	}
}

// begin reports whether the head of a frame is complete.
func (fp *frameParser) begin() bool {
	h := fp.head
	if len(h) < 2 {
		return false
	}
	size, at := int(h[1]&0x7f), 2
	switch size {
	case 126:
		at = 4
	case 127:
		at = 10
	}
	fp.masked = h[1]&0x80 != 0
	need := at
	if fp.masked {
		need += 4
	}
	if len(h) < need {
		return false
	}
	switch size {
	case 126:
		size = int(binary.BigEndian.Uint16(h[2:]))
	case 127:
		size = int(binary.BigEndian.Uint64(h[2:]))
	}
	if fp.masked {
		copy(fp.mask[:], h[at:])
	}
	// The high bit tells a frame under way from none, a continuation too.
	fp.current = message{op: h[0]&0x0f | 0x80, size: size}
	fp.left, fp.at = size, 0
	return true
}
