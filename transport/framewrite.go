package transport

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"net"
	"sync"
)

// The other bits and opcodes of a frame's first two bytes (RFC 6455, section
// 5.2).
const (
	opContinuation = 0x0
	finBit         = 0x80
	maskBit        = 0x80
	maxFrameHeader = 14
)

// frameBuf is a pooled buffer in which a frame, or a part of a large one, is put
// together: what leaves in one write to the network.
type frameBuf [maxPhysicalWrite]byte

var frameBufs = sync.Pool{New: func() any { return new(frameBuf) }}

// writeFrame writes one frame of data: opcode is the message's type, or
// opContinuation; fin says that the message ends with it. A message begins when
// the one before has ended. p is not changed.
func (c *rawConn) writeFrame(opcode byte, fin bool, p []byte) error {
	what := aMessage
	if opcode == opContinuation {
		what = anyFrame
	}
	if err := c.takePen(what); err != nil {
		return err
	}
	defer c.layPen()
	if c.controlDue() {
		if err := c.writeControl(); err != nil {
			return err
		}
	}
	c.mu.Lock()
	c.message = !fin
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return net.ErrClosed
	}
	if fin {
		opcode |= finBit
	}
	if c.client {
		return c.pushMasked(opcode, p)
	}
	return c.pushPlain(opcode, p)
}

// appendHeader appends a frame's header, without a mask's key.
func appendHeader(b []byte, first, mask byte, n int) []byte {
	switch {
	case n < 126:
		return append(b, first, mask|byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, first, mask|126), uint16(n))
	}
	return binary.BigEndian.AppendUint64(append(b, first, mask|127), uint64(n))
}

// pushPlain writes a frame that is not masked, as a server does.
func (c *rawConn) pushPlain(first byte, p []byte) error {
	b := frameBufs.Get().(*frameBuf)
	defer frameBufs.Put(b)
	h := appendHeader(b[:0], first, 0, len(p))
	n := copy(b[len(h):], p)
	if err := c.push(b[:len(h)+n]); err != nil {
		return err
	}
	return c.push(p[n:])
}

// pushMasked writes a frame that is masked, as a client must.
func (c *rawConn) pushMasked(first byte, p []byte) error {
	b := frameBufs.Get().(*frameBuf)
	defer frameBufs.Put(b)
	key := newMaskKey()
	h := append(appendHeader(b[:0], first, maskBit, len(p)), key[:]...)
	for at, done := len(h), 0; ; at = 0 {
		n := min(len(p)-done, len(b)-at)
		mask(b[at:at+n], p[done:done+n], key, done)
		if err := c.push(b[:at+n]); err != nil {
			return err
		}
		if done += n; done == len(p) {
			return nil
		}
	}
}

// newMaskKey makes the key of one frame, which nobody may be able to predict
// (RFC 6455, section 10.3).
func newMaskKey() (key [4]byte) {
	_, _ = rand.Read(key[:]) // never fails
	return key
}

// mask puts p, masked with key, into dst, which has the same length and may be
// p. The first byte of p is number at of the payload.
func mask(dst, p []byte, key [4]byte, at int) {
	for at%4 != 0 && len(p) > 0 {
		dst[0] = p[0] ^ key[at%4]
		dst, p, at = dst[1:], p[1:], at+1
	}
	if len(p) > 256 {
		// XORBytes has the machine's widest instructions, and wants an operand
		// as long as p: a piece at a time.
		var keys [1024]byte
		for n := copy(keys[:], key[:]); n < len(keys); {
			n += copy(keys[n:], keys[:n])
		}
		for len(p) >= len(keys) {
			subtle.XORBytes(dst, p[:len(keys)], keys[:])
			dst, p = dst[len(keys):], p[len(keys):]
		}
		subtle.XORBytes(dst, p, keys[:len(p)])
		return
	}
	k := uint64(binary.LittleEndian.Uint32(key[:]))
	k |= k << 32
	for len(p) >= 8 {
		binary.LittleEndian.PutUint64(dst, binary.LittleEndian.Uint64(p)^k)
		dst, p = dst[8:], p[8:]
	}
	for i := range p {
		dst[i] = p[i] ^ key[i%4]
	}
}
