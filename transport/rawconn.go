package transport

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"
)

// maxPhysicalWrite bounds one write to the network, in bytes: the WriteTimeout
// begins anew with each, so a large write that makes progress is not cut.
const maxPhysicalWrite = 64 << 10

// rawConn is the byte stream beneath a WebSocket. Data frames pass through it
// as the WebSocket library writes them; pings and pongs are put in by rawConn
// itself, between frames.
//
// It does so because the library waits for its frame lock to answer a ping,
// and kills the read side after five seconds if a write is blocked for that
// long. Here a control frame that is due waits without anybody waiting for
// it: whoever writes next, or is writing, sends it at the next frame boundary,
// and if nobody writes, a goroutine that lives for that one frame does.
//
// To write to the network one must hold the pen, which is held for one Write
// or one turn of control frames.
type rawConn struct {
	// Immutable after newRawConn.
	nc      net.Conn
	r       io.Reader
	client  bool          // control frames are masked
	timeout time.Duration // WriteTimeout; no limit if negative
	owner   rawOwner

	// Owned by the holder of the pen.
	scan  frameScan
	held  *chunk      // begin of a frame that is not written yet; nil at a boundary
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
	flushing bool   // owner was told to flushFragment
	cut      bool
	cause    error // of the cut
	readErr  error // first error of Read
	writeErr error // first error of a write
}

// rawOwner is told what rawConn cannot settle by itself. Its methods do not
// block.
type rawOwner interface {
	// stalled: a write made no progress for the WriteTimeout, or that long ago
	// one has failed. Until then the reading side could find what the peer has
	// sent before it went away, its close frame above all.
	stalled(err error)
	// flushFragment: a close frame is due, and cannot go out, since nobody is
	// writing and the library holds back the end of a frame. Called once.
	flushFragment()
}

// newRawConn wraps nc. The stream is read from r: nc, or something that yields
// first what was read from nc already.
func newRawConn(nc net.Conn, r io.Reader, client bool, timeout time.Duration, owner rawOwner) *rawConn {
	c := &rawConn{nc: nc, r: r, client: client, timeout: timeout, owner: owner}
	c.penFree.L = &c.mu
	return c
}

// Read implements io.Reader for the WebSocket library. It never returns io.EOF:
// the library takes that, at the begin of a payload and between fragments, for
// the end of the message, and a message that was cut off would look whole.
func (c *rawConn) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		c.mu.Lock()
		if c.readErr == nil {
			c.readErr = err
		}
		c.mu.Unlock()
	}
	return n, err
}

// Write implements io.Writer for the WebSocket library, which calls it from
// one goroutine at a time, with whatever fills its buffer. What is not the end
// of a frame is held back, so that a frame of a few buffers is one write to
// the network. After a close frame Write fails.
func (c *rawConn) Write(p []byte) (int, error) {
	if err := c.takePen(); err != nil {
		return 0, err
	}
	defer c.layPen()
	n := 0
	for n < len(p) {
		due := c.controlDue()
		if due && c.scan.atBoundary() {
			if err := c.writeControl(); err != nil {
				return n, err
			}
		}
		if c.scan.closed && c.scan.atBoundary() {
			return n, net.ErrClosed
		}
		end := n + c.scan.advance(p[n:])
		for !due && end < len(p) { // more whole frames go out with this one
			next := c.scan
			k := next.advance(p[end:])
			if !next.atBoundary() {
				break
			}
			c.scan = next
			end += k
		}
		if err := c.emit(p[n:end]); err != nil {
			return n, err
		}
		n = end
	}
	return n, nil
}

// emit writes p, after which scan stands, to the network or, inside a frame,
// to held. The caller holds the pen.
func (c *rawConn) emit(p []byte) error {
	if c.held != nil && len(p) > len(c.held.buf)-c.held.to {
		if err := c.flushHeld(); err != nil {
			return err
		}
	}
	if c.held == nil && (c.scan.atBoundary() || len(p) > chunkSize/2) {
		return c.push(p)
	}
	if c.held == nil {
		c.held = newChunk()
	}
	c.held.to += copy(c.held.buf[c.held.to:], p)
	if c.scan.atBoundary() {
		return c.flushHeld()
	}
	return nil
}

func (c *rawConn) flushHeld() error {
	h := c.held
	c.held = nil
	err := c.push(h.buf[:h.to])
	chunks.Put(h)
	return err
}

// Close implements io.Closer for the WebSocket library.
func (c *rawConn) Close() error {
	c.cutOff(net.ErrClosed)
	return nil
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
	return (c.pingDue || c.pongDue || c.closeDue) && !c.scan.closed && !c.cut && c.writeErr == nil
}

// errors returns the first error of Read, and that of a write.
func (c *rawConn) errors() (readErr, writeErr error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.readErr, c.writeErr
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

// wait returns when nobody writes any more, and nothing is timed. The
// connection has been cut.
func (c *rawConn) wait() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.penTaken {
		c.penFree.Wait()
	}
	c.held = nil // the pen is nobody's
	if c.timer != nil {
		c.timer.Stop()
	}
}

func (c *rawConn) takePen() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.penTaken && !c.cut {
		c.penFree.Wait()
	}
	if c.cut {
		return c.cause
	}
	if c.writeErr != nil {
		return c.writeErr
	}
	c.penTaken = true
	return nil
}

// layPen writes the control frames that are due, if the place allows it, and
// gives the pen back.
func (c *rawConn) layPen() {
	c.mu.Lock()
	for c.anyDueLocked() && c.scan.atBoundary() {
		c.mu.Unlock()
		_ = c.writeControl() // an error is kept in writeErr
		c.mu.Lock()
	}
	stuck := c.closeDue && c.anyDueLocked() && !c.flushing // inside a frame
	if stuck {
		c.flushing = true
	}
	c.penTaken = false
	c.penFree.Broadcast() // writers take turns, and wait may wait as well
	c.mu.Unlock()
	if stuck {
		c.owner.flushFragment()
	}
}

// writeControl writes the control frames that are due. The caller holds the
// pen and stands at a boundary.
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
		c.scan.closed = true
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
	var key [4]byte
	_, _ = rand.Read(key[:]) // never fails
	b = append(b, 0x80|byte(len(payload)))
	b = append(b, key[:]...)
	for i, x := range payload {
		b = append(b, x^key[i%4])
	}
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
	_, err := c.errors()
	if err == nil {
		err = ErrStalled
	}
	c.owner.stalled(err)
}
