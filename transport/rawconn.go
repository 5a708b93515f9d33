package transport

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// maxPhysicalWrite bounds one write to the network, in bytes: the WriteTimeout
// begins anew with each, so a large write that makes progress is not cut.
const maxPhysicalWrite = 64 << 10

// rawConn is the network beneath a WebSocket. It writes frames, data and control
// ones, and reads bytes.
//
// A control frame that is due waits without anybody waiting for it: whoever
// writes next, or is writing, sends it at the next frame boundary, and if nobody
// writes, a goroutine that lives for that one frame does. So a write that is
// blocked holds up no reader, and kills nothing.
//
// To write to the network one must hold the pen, which is held for one frame
// or one turn of control frames: nobody takes it inside a frame.
type rawConn struct {
	// Immutable after newRawConn.
	nc      net.Conn
	r       io.Reader
	client  bool          // control frames are masked
	timeout time.Duration // WriteTimeout; no limit if negative
	owner   rawOwner

	received atomic.Int64 // bytes

	// Owned by the holder of the pen.
	timer *time.Timer // armed during a write to the network, and for good by one that failed

	// Guarded by mu. Never held across I/O.
	mu       sync.Mutex
	penFree  sync.Cond // the pen was laid down, or the connection cut
	penTaken bool
	pingDue  bool
	pingID   uint64
	pongDue  bool
	pong     []byte // payload of the pong that is due
	closeDue bool
	close    []byte // payload of the close frame that is due
	closed   bool   // a close frame was written: nothing follows it
	message  bool   // a message in fragments is under way: no other one begins
	cut      bool
	cause    error // of the cut
	writeErr error // first error of a write
}

// rawOwner is told what rawConn cannot settle by itself. Its methods do not
// block.
type rawOwner interface {
	// stalled: a write made no progress for the WriteTimeout, or that long ago
	// one has failed. Until then the reading side could find what the peer has
	// sent before it went away, its close frame above all.
	stalled(err error)
}

// newRawConn wraps nc. The stream is read from r: nc, or something that yields
// first what was read from nc already.
func newRawConn(nc net.Conn, r io.Reader, client bool, timeout time.Duration, owner rawOwner) *rawConn {
	c := &rawConn{nc: nc, r: r, client: client, timeout: timeout, owner: owner}
	c.penFree.L = &c.mu
	return c
}

// Read never returns io.EOF: a connection that was lost must not be taken for
// the end of a message.
func (c *rawConn) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.received.Add(int64(n))
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Write writes bytes that are no frame: the answer to a handshake.
func (c *rawConn) Write(p []byte) (int, error) {
	if err := c.takePen(anyFrame); err != nil {
		return 0, err
	}
	defer c.layPen()
	if err := c.push(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// sendPing makes a ping with id as payload due. It does not block.
func (c *rawConn) sendPing(id uint64) {
	c.mu.Lock()
	c.pingID = max(c.pingID, id)
	c.pingDue = true
	c.control()
}

// sendPong makes a pong due. It does not block. If an earlier one is still due
// it is replaced: only the most recent ping needs an answer (RFC 6455, 5.5.3).
func (c *rawConn) sendPong(payload []byte) {
	c.mu.Lock()
	c.pong = append(c.pong[:0], payload...)
	c.pongDue = true
	c.control()
}

// sendClose makes a close frame due, after which nothing is written. It does
// not block.
func (c *rawConn) sendClose(payload []byte) {
	c.mu.Lock()
	c.close, c.closeDue = payload, true
	c.control()
}

// control sees to the control frames that are due, and unlocks mu. Whoever has
// the pen does so before laying it down.
func (c *rawConn) control() {
	if !c.penTaken && c.anyDueLocked() {
		c.penTaken = true
		go c.layPen()
	}
	c.mu.Unlock()
}

func (c *rawConn) controlDue() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.anyDueLocked()
}

// anyDueLocked reports whether a control frame is due and can still be
// written. The caller holds the pen, or nobody does.
func (c *rawConn) anyDueLocked() bool {
	return (c.pingDue || c.pongDue || c.closeDue) && !c.closed && !c.cut && c.writeErr == nil
}

// failed returns the first error of a write.
func (c *rawConn) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writeErr
}

// cutOff ends the connection. The first cause is kept.
func (c *rawConn) cutOff(cause error) {
	c.mu.Lock()
	if c.cut {
		c.mu.Unlock()
		return
	}
	c.cut, c.cause = true, cause
	c.penFree.Broadcast()
	c.mu.Unlock()
	// tls.Conn.Close may wait seconds to send its alert. The close frame has
	// told the peer more than that.
	nc := c.nc
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	_ = nc.Close()
}

// awaitClose returns when the close frame that is due has been written, or can
// not be any more.
func (c *rawConn) awaitClose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.closeDue && c.anyDueLocked() || c.penTaken && !c.cut {
		c.penFree.Wait()
	}
}

// wait returns when nobody writes any more, and nothing is timed. The
// connection has been cut.
func (c *rawConn) wait() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.penTaken {
		c.penFree.Wait()
	}
	if c.timer != nil {
		c.timer.Stop()
	}
}

// penFor says what the pen is wanted for.
type penFor uint8

const (
	anyFrame penFor = iota // a control frame, or one of the message that is under way
	aMessage               // the first frame of a message
)

// takePen waits for its turn to write, and not once a write has failed.
func (c *rawConn) takePen(what penFor) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for (c.penTaken || what == aMessage && c.message) && !c.cut && !c.closed && c.writeErr == nil {
		c.penFree.Wait()
	}
	switch {
	case c.cut:
		return c.cause
	case c.writeErr != nil:
		return c.writeErr
	case c.closed:
		return net.ErrClosed
	}
	c.penTaken = true
	return nil
}

// layPen writes the control frames that are due, and gives the pen back.
func (c *rawConn) layPen() {
	c.mu.Lock()
	for c.anyDueLocked() {
		c.mu.Unlock()
		_ = c.writeControl() // an error is kept in writeErr
		c.mu.Lock()
	}
	c.penTaken = false
	c.penFree.Broadcast() // writers take turns, and wait may wait as well
	c.mu.Unlock()
}

// writeControl writes the control frames that are due. The caller holds the
// pen.
func (c *rawConn) writeControl() error {
	var frames []byte
	c.mu.Lock()
	if c.pongDue {
		frames = c.appendControl(frames, opPong, c.pong)
	}
	if c.pingDue {
		frames = c.appendControl(frames, opPing, binary.BigEndian.AppendUint64(nil, c.pingID))
	}
	if c.closeDue {
		frames = c.appendControl(frames, opClose, c.close)
		c.closed = true
	}
	c.pongDue, c.pingDue, c.closeDue = false, false, false
	c.mu.Unlock()
	return c.push(frames)
}

// appendControl appends a control frame to b. payload has 125 bytes at most.
func (c *rawConn) appendControl(b []byte, opcode byte, payload []byte) []byte {
	b = append(b, 0x80|opcode)
	if !c.client {
		return append(append(b, byte(len(payload))), payload...)
	}
	key := newMaskKey()
	b = append(b, 0x80|byte(len(payload)))
	b = append(b, key[:]...)
	at := len(b)
	b = append(b, payload...)
	mask(b[at:], b[at:], key, 0)
	return b
}

// push writes p to the network, in parts that are each under the WriteTimeout.
// The caller holds the pen.
func (c *rawConn) push(p []byte) error {
	for len(p) > 0 {
		part := p[:min(len(p), maxPhysicalWrite)]
		if err := c.pushPart(part); err != nil {
			return err
		}
		p = p[len(part):]
	}
	return nil
}

func (c *rawConn) pushPart(p []byte) error {
	if c.timeout > 0 {
		if c.timer == nil {
			c.timer = time.AfterFunc(c.timeout, c.tellStalled)
		} else {
			c.timer.Reset(c.timeout)
		}
	}
	_, err := c.nc.Write(p)
	if c.timer != nil {
		c.timer.Stop()
	}
	if err == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return c.cause
	}
	if c.writeErr == nil {
		c.writeErr = err
	}
	if c.timer != nil {
		c.timer.Reset(c.timeout)
	}
	return err
}

// tellStalled is called by timer. If the write ends at this very moment it has
// still taken the whole WriteTimeout.
func (c *rawConn) tellStalled() {
	err := c.failed()
	if err == nil {
		err = ErrStalled
	}
	c.owner.stalled(err)
}
