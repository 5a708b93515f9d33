package transport

import (
	"encoding/binary"
	"errors"
	"io"
	"time"
)

func (c *wsConn) Close(code CloseCode, reason string) {
	c.closeWithin(c.opts.CloseTimeout, code, reason)
}

// CloseSlowly is Close for a peer that may still have much to read before the
// close frame: it has the WriteTimeout.
func (c *wsConn) CloseSlowly(code CloseCode, reason string) {
	c.closeWithin(c.opts.slowCloseTimeout(), code, reason)
}

func (c *wsConn) closeWithin(timeout time.Duration, code CloseCode, reason string) {
	code, reason = sendable(code, reason)
	e := &CloseError{Code: code, Reason: reason}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finish(e) == e {
		c.cutWithinLocked(timeout)
	} else {
		c.hastenLocked()
	}
}

func (c *wsConn) CloseNow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := (&CloseError{Code: CloseAbnormal}); c.finish(e) != e {
		c.hastenLocked()
	}
}

// hastenLocked leaves a close that was to go slowly CloseTimeout.
func (c *wsConn) hastenLocked() {
	if c.cutTimer != nil && time.Until(c.cutAt) > c.opts.CloseTimeout {
		c.cutWithinLocked(c.opts.CloseTimeout)
	}
}

// cutWithinLocked cuts the connection after timeout.
func (c *wsConn) cutWithinLocked(timeout time.Duration) {
	if c.cutTimer != nil {
		c.cutTimer.Stop()
	}
	c.cutTimer = time.AfterFunc(timeout, c.cutOff)
	c.cutAt = time.Now().Add(timeout)
}

// finish ends the connection with e, if nothing has ended it yet, and returns
// how it ended.
func (c *wsConn) finish(e *CloseError) *CloseError {
	if c.end.CompareAndSwap(nil, e) {
		go c.shutdown(e)
	}
	return c.end.Load()
}

// shutdown takes the connection down. It is the last goroutine of c.
func (c *wsConn) shutdown(e *CloseError) {
	switch {
	case e.Code == CloseAbnormal:
	case e.Remote:
		c.answerClose()
	default:
		c.closeHandshake(e)
	}
	c.raw.cutOff(e)
	c.raw.wait()
	close(c.done)
}

// answerClose waits for the answer to the peer's close frame to be written,
// behind a frame that may be under way.
func (c *wsConn) answerClose() {
	c.mu.Lock()
	c.cutWithinLocked(c.opts.CloseTimeout)
	c.mu.Unlock()
	c.raw.awaitClose()
	c.mu.Lock()
	c.cutTimer.Stop()
	c.cutTimer = nil
	c.mu.Unlock()
}

// closeHandshake sends a close frame and waits for the answer.
func (c *wsConn) closeHandshake(e *CloseError) {
	c.mu.Lock()
	if c.cutTimer == nil { // this side closes for an error
		c.cutWithinLocked(c.opts.CloseTimeout)
	}
	c.mu.Unlock()
	var payload []byte
	if e.Code != CloseNoStatus {
		payload = append(binary.BigEndian.AppendUint16(nil, uint16(e.Code)), e.Reason...)
	}
	c.raw.sendClose(payload)
	c.startDrain()
	<-c.drained
	c.raw.awaitClose()
	c.mu.Lock()
	c.cutTimer.Stop()
	c.cutTimer = nil
	c.mu.Unlock()
}

func (c *wsConn) cutOff() { c.raw.cutOff(c.end.Load()) }

// The states of wsConn.reading.
const (
	readingHeld  = 1 << iota // a goroutine reads frames
	readingDrain             // Close wants what is left to be read and dropped
)

// takeReading gives the caller the reading side, or says how the
// connection has ended.
func (c *wsConn) takeReading() error {
	if e := c.end.Load(); e != nil {
		return e
	}
	if c.reading.CompareAndSwap(0, readingHeld) {
		return nil
	}
	if e := c.end.Load(); e != nil {
		return e
	}
	return errReading
}

// giveReading gives the reading side back, or on to Close if that waits for
// it.
func (c *wsConn) giveReading() {
	if !c.reading.CompareAndSwap(readingHeld, 0) {
		go c.drain()
	}
}

// startDrain begins to read and drop whatever the peer still sends, up to its
// close frame. drained is closed when that is done. Nothing is handed to the
// caller of Reader any more.
func (c *wsConn) startDrain() {
	c.drained = make(chan struct{})
	if c.reading.Or(readingDrain)&readingHeld == 0 {
		c.reading.Or(readingHeld)
		c.drain()
	} // else the holder passes it on
}

// drain reads until the peer closes or the connection is cut. It holds the
// reading side, and keeps it.
func (c *wsConn) drain() {
	defer close(c.drained)
	for err := error(nil); err == nil && !c.frames.closed; {
		if c.frames.left > 0 {
			_, err = io.CopyN(io.Discard, payloadReader{&c.frames}, c.frames.left)
		} else {
			_, err = c.frames.nextFrame()
		}
	}
	if c.frames.closed {
		return // whoever read it: a peer that closes at the same time waits as well
	}
	// If the peer broke the protocol there are no frames to be found any
	// more, but bytes that are left unread would make TCP drop our close
	// frame.
	_, _ = io.Copy(io.Discard, c.raw)
}

// payloadReader is the payload of the current frame.
type payloadReader struct{ f *frameReader }

func (r payloadReader) Read(p []byte) (int, error) { return r.f.payload(p) }

// readFailed turns an error of reading into the end of the connection.
func (c *wsConn) readFailed(err error) error {
	if e := c.end.Load(); e != nil {
		return e
	}
	var closed *CloseError
	switch {
	case errors.As(err, &closed):
		return c.finish(closed)
	case errors.Is(err, errProtocol):
		return c.finish(&CloseError{Code: CloseProtocolError, Err: err})
	}
	return c.finish(abnormal(err))
}

// writeFailed turns an error of writing into a
// *CloseError.
func (c *wsConn) writeFailed(err error) error {
	if e := c.end.Load(); e != nil {
		return e
	}
	if err := c.raw.failed(); err != nil {
		return abnormal(err)
	}
	// The peer's close is being answered: the reading goroutine is about to say
	// how it was.
	t := time.NewTimer(c.opts.CloseTimeout)
	defer t.Stop()
	select {
	case <-c.done:
		return c.end.Load()
	case <-t.C:
		return abnormal(err)
	}
}

// stalled implements rawOwner.
func (c *wsConn) stalled(err error) {
	c.finish(&CloseError{Code: CloseAbnormal, Err: err, Remote: err != ErrStalled})
	c.raw.cutOff(err)
}

// abnormal is an end by an error of the network.
func abnormal(err error) *CloseError {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // io.EOF is the end of a message
	}
	return &CloseError{Code: CloseAbnormal, Remote: true, Err: err}
}
