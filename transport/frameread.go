package transport

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// frameReader reads the frames of one direction (RFC 6455, section 5). It is
// owned by the goroutine that reads.
//
// Headers are read through a small buffer, large payloads past it into the
// caller's. While large frames follow one another, no more is read ahead than a
// header, so that each payload comes in one piece.
type frameReader struct {
	// Immutable after start.
	br     *bufio.Reader // over ahead
	client bool          // this side is the client: frames must not be masked
	// control is called for control frames, with a payload that is not masked
	// any more and is valid until it returns. Its error ends the reading.
	control func(opcode byte, payload []byte) error

	ahead readAhead

	// Of the data frame whose payload is being read.
	left int64 // bytes to come
	fin  bool  // the message ends with it
	key  [4]byte
	at   int // of key, for the next byte

	message bool // a message has begun, and its last frame has not been read
	closed  bool // the close frame was read: nothing comes after it

	scratch [8]byte // of header
}

// start puts the network beneath f, with a buffer of size bytes.
func (f *frameReader) start(raw *rawConn, size int, client bool, control func(opcode byte, payload []byte) error) {
	f.ahead.raw = raw
	f.br, f.client, f.control = bufio.NewReaderSize(&f.ahead, size), client, control
}

// readAhead is the network as the buffer of a frameReader sees it.
type readAhead struct {
	raw  *rawConn
	most int // bytes that one Read gets, if not 0: the last data frame was large
}

func (a *readAhead) Read(p []byte) (int, error) {
	if a.most > 0 {
		p = p[:min(len(p), a.most)]
	}
	return a.raw.Read(p)
}

// maxControlPayload is what a control frame may hold, in bytes.
const maxControlPayload = 125

// frameHeader is the header of one frame.
type frameHeader struct {
	opcode byte
	fin    bool
	length int64
	key    [4]byte // of a frame that is masked
	size   int     // of the header itself, in bytes
}

// errProtocol: the peer breaks RFC 6455.
var errProtocol = errors.New("transport: not a WebSocket frame")

func protocolError(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errProtocol}, args...)...)
}

// header reads the next frame's header and checks what can be checked of it.
func (f *frameReader) header() (h frameHeader, err error) {
	first, err := f.br.ReadByte()
	if err != nil {
		return h, err
	}
	second, err := f.br.ReadByte()
	if err != nil {
		return h, err
	}
	h.fin, h.opcode, h.length = first&finBit != 0, first&0xF, int64(second&^maskBit)
	switch {
	case first&0x70 != 0:
		return h, protocolError("a reserved bit is set")
	case (second&maskBit != 0) == f.client:
		return h, protocolError("masked is %t", second&maskBit != 0)
	case h.opcode >= opClose && (!h.fin || h.length > maxControlPayload):
		return h, protocolError("a control frame in fragments, or of more than 125 bytes")
	}
	b := f.scratch[:]
	h.size = 2
	switch h.length {
	case 126:
		h.size += 2
		_, err = io.ReadFull(f.br, b[:2])
		h.length = int64(binary.BigEndian.Uint16(b))
	case 127:
		h.size += 8
		_, err = io.ReadFull(f.br, b)
		if h.length = int64(binary.BigEndian.Uint64(b)); h.length < 0 {
			return h, protocolError("a payload of %d bytes", uint64(h.length))
		}
	}
	if err == nil && !f.client {
		h.size += 4
		_, err = io.ReadFull(f.br, b[:4])
		h.key = [4]byte(b)
	}
	return h, err
}

// nextFrame reads up to the payload of the next data frame, and returns its
// opcode. Control frames before it are obeyed.
func (f *frameReader) nextFrame() (opcode byte, err error) {
	for {
		h, err := f.header()
		if err != nil {
			return 0, err
		}
		switch h.opcode {
		case opContinuation, byte(Text), byte(Binary):
			if (h.opcode == opContinuation) != f.message {
				return 0, protocolError("opcode %d, and a message is %t", h.opcode, f.message)
			}
			f.left, f.fin, f.key, f.at = h.length, h.fin, h.key, 0
			f.message = !h.fin
			f.ahead.most = 0
			if h.length > int64(f.br.Size()) {
				f.ahead.most = h.size
			}
			return h.opcode, nil
		case opClose, opPing, opPong:
			payload := make([]byte, h.length)
			if _, err := io.ReadFull(f.br, payload); err != nil {
				return 0, err
			}
			if !f.client {
				mask(payload, payload, h.key, 0)
			}
			if err := f.control(h.opcode, payload); err != nil {
				return 0, err
			}
		default:
			return 0, protocolError("opcode %d", h.opcode)
		}
	}
}

// payload reads of the current frame's payload: what has been read ahead of it,
// or what one read of the network gets. It waits only for the first byte.
func (f *frameReader) payload(p []byte) (n int, err error) {
	p = p[:min(int64(len(p)), f.left)]
	if f.ahead.most > 0 && f.br.Buffered() == 0 {
		n, err = f.ahead.raw.Read(p)
	} else {
		n, err = f.br.Read(p)
	}
	if n > 0 {
		f.left -= int64(n)
		if !f.client {
			mask(p[:n], p[:n], f.key, f.at)
			f.at = (f.at + n) & 3
		}
		err = nil // it comes again
	}
	return n, err
}

// parseClose takes the payload of a close frame apart.
func parseClose(p []byte) (CloseCode, string, error) {
	if len(p) == 0 {
		return CloseNoStatus, "", nil
	}
	if len(p) == 1 {
		return 0, "", protocolError("a close frame of one byte")
	}
	code := CloseCode(binary.BigEndian.Uint16(p))
	if code == CloseNoStatus || !code.Sendable() || !utf8.Valid(p[2:]) {
		return 0, "", protocolError("a close frame with code %d", code)
	}
	return code, string(p[2:]), nil
}
