package transport

import (
	"encoding/binary"
	"errors"
	"io"
	"sync"
)

// ErrMidFrame: a close frame cannot be sent, since another frame is under way
// or a close frame has been sent before.
var ErrMidFrame = errors.New("transport: no place for a close frame")

// Passthrough writes the bytes of a WebSocket that two others speak to its
// client, and follows them, so that it can end the WebSocket with a close frame
// of its own where nobody else is left to do so. It changes nothing else. Its
// methods may be called concurrently.
type Passthrough struct {
	w io.Writer

	mu   sync.Mutex // held for a write
	scan frameScan
}

// NewPassthrough returns a Passthrough to w. The next byte must begin a frame.
func NewPassthrough(w io.Writer) *Passthrough { return &Passthrough{w: w} }

// Write implements io.Writer.
func (p *Passthrough) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := p.w.Write(b)
	for seen := b[:n]; len(seen) > 0; {
		seen = seen[p.scan.advance(seen):]
	}
	return n, err
}

// Close sends an unmasked close frame, as a server does, if the bytes so far
// end with a frame and no write is under way; else it fails with ErrMidFrame at
// once. Code and reason are made sendable as Conn.Close does.
func (p *Passthrough) Close(code CloseCode, reason string) error {
	if !p.mu.TryLock() {
		return ErrMidFrame
	}
	defer p.mu.Unlock()
	if !p.scan.atBoundary() || p.scan.closed {
		return ErrMidFrame
	}
	p.scan.closed = true
	code, reason = sendable(code, reason)
	frame := []byte{0x80 | opClose, 0}
	if code != CloseNoStatus {
		frame = binary.BigEndian.AppendUint16(frame, uint16(code))
		frame = append(frame, reason...)
	}
	frame[1] = byte(len(frame) - 2)
	_, err := p.w.Write(frame)
	return err
}
