package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"time"

	"github.com/coder/websocket"
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
	if !e.Remote && e.Code != CloseAbnormal {
		c.closeHandshake(e)
	}
	c.raw.cutOff(e)
	_ = c.ws.CloseNow()
	c.raw.wait()
	close(c.done)
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
	c.mu.Lock()
	c.cutTimer.Stop()
	c.cutTimer = nil
	c.mu.Unlock()
}

// flushFragment implements rawOwner: the library's own Close sends what the
// library holds back, and then the close frame.
func (c *wsConn) flushFragment() { go c.closeByLibrary() }

// closeByLibrary ends when the connection is cut, if not before.
func (c *wsConn) closeByLibrary() {
	e := c.end.Load()
	_ = c.ws.Close(websocket.StatusCode(e.Code), e.Reason)
}

func (c *wsConn) cutOff() { c.raw.cutOff(c.end.Load()) }

// The states of wsConn.reading.
const (
	readingHeld  = 1 << iota // a goroutine reads from ws
	readingDrain             // Close wants what is left to be read and dropped
)

// takeReading gives the caller the reading side of ws, or says how the
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
	r := c.reader.r
	for {
		if r != nil {
			if _, err := io.Copy(io.Discard, r); err != nil {
				break
			}
		}
		var err error
		if _, r, err = c.ws.Reader(context.Background()); err != nil {
			break
		}
	}
	// If the peer broke the protocol there are no frames to be found any
	// more, but bytes that are left unread would make TCP drop our close
	// frame.
	_, _ = io.Copy(io.Discard, c.raw)
}

// readFailed turns an error of the WebSocket library's reader into the end of
// the connection.
func (c *wsConn) readFailed(err error) error {
	if e := c.end.Load(); e != nil {
		return e
	}
	readErr, _ := c.raw.errors()
	var ce websocket.CloseError
	switch {
	case errors.As(err, &ce):
		return c.finish(&CloseError{Code: CloseCode(ce.Code), Reason: ce.Reason, Remote: true})
	case readErr != nil:
		return c.finish(abnormal(readErr))
	default:
		return c.finish(&CloseError{Code: CloseProtocolError, Err: err})
	}
}

// writeFailed turns an error of the WebSocket library's writer into a
// *CloseError.
func (c *wsConn) writeFailed(err error) error {
	if e := c.end.Load(); e != nil {
		return e
	}
	if _, writeErr := c.raw.errors(); writeErr != nil {
		return abnormal(writeErr)
	}
	// The library refuses to write, since it has answered the peer's close or
	// closed for an error: the reading goroutine is about to say how.
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
