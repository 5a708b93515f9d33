package memnet

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// Conn is one end of a connection, a net.Conn with half close. All methods may
// be called concurrently. Errors are *net.OpError and match net.ErrClosed,
// os.ErrDeadlineExceeded, syscall.EPIPE and syscall.ECONNRESET as those of a
// *net.TCPConn do.
type Conn struct {
	// Immutable after newPair.
	link          *link
	in, out       *half
	local, remote addr

	// Guarded by link.mu.
	reset bool // Close is a Cut; see SetLinger
}

var _ net.Conn = (*Conn)(nil)

// Pipe returns the two ends of a connection with a buffer of 64 KiB each way.
func Pipe() (*Conn, *Conn) { return newPair("pipe-a:1", "pipe-b:1") }

func newPair(a, b addr) (*Conn, *Conn) {
	l := &link{}
	return &Conn{link: l, in: &l.ba, out: &l.ab, local: a, remote: b},
		&Conn{link: l, in: &l.ab, out: &l.ba, local: b, remote: a}
}

// Read waits for at least one byte, for the end of what the other end writes
// (io.EOF), for Cut, for Close of this end or for the read deadline.
func (c *Conn) Read(p []byte) (n int, err error) {
	err = c.await(c.in, &c.in.readDeadline, func() error {
		switch {
		case c.link.cut:
			return os.NewSyscallError("read", syscall.ECONNRESET)
		case len(p) == 0:
			return nil
		case c.in.frozen:
			return errWait
		}
		ready, next := c.in.readyLocked()
		switch {
		case ready > 0:
			n = c.in.readLocked(p, ready)
			c.in.wake.notifyLocked() // room for the writer
			return nil
		case c.in.writerDone && next.IsZero():
			return io.EOF
		}
		return errWait
	})
	if err == nil || err == io.EOF {
		return n, err
	}
	return n, c.opError("read", err)
}

// Write waits until all of p is in the buffer. Of concurrent writes each is in
// one piece. n counts what was taken before an error, and will arrive.
func (c *Conn) Write(p []byte) (n int, err error) {
	turn := false // this call is the one that writes
	err = c.await(c.out, &c.out.writeDeadline, func() error {
		switch {
		case c.link.cut:
			return os.NewSyscallError("write", syscall.ECONNRESET)
		case c.out.writerDone, c.out.readerGone && !c.in.frozen:
			return os.NewSyscallError("write", syscall.EPIPE)
		case c.out.writing && !turn:
			return errWait
		}
		c.out.writing, turn = true, true
		if room := min(len(p)-n, bufferSize-c.out.buf.Len()); room > 0 {
			c.out.buf.Write(p[n : n+room])
			c.out.sentLocked(room)
			n += room
			c.out.wake.notifyLocked()
		}
		if n < len(p) {
			return errWait
		}
		return nil
	})
	if turn {
		c.link.mu.Lock()
		c.out.writing = false
		c.out.wake.notifyLocked()
		c.link.mu.Unlock()
	}
	if err != nil {
		return n, c.opError("write", err)
	}
	return n, nil
}

// CloseWrite ends this direction: the other end reads what is left, then
// io.EOF. Reads go on.
func (c *Conn) CloseWrite() error {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if c.closedLocked() {
		return c.opError("close", net.ErrClosed)
	}
	c.out.endLocked()
	c.link.notifyLocked()
	return nil
}

// Close ends both directions and wakes the blocked calls of this end. The
// other end reads what is left, then io.EOF; its writes fail.
func (c *Conn) Close() error {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if c.closedLocked() {
		return c.opError("close", net.ErrClosed)
	}
	c.in.readerGone = true
	c.link.cut = c.link.cut || c.reset
	c.out.endLocked()
	c.link.notifyLocked()
	return nil
}

// SetLinger is that of a *net.TCPConn: with 0, Close cuts the connection. Any
// other value has Close as it is without SetLinger.
func (c *Conn) SetLinger(sec int) error {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if c.closedLocked() {
		return c.opError("set", net.ErrClosed)
	}
	c.reset = sec == 0
	return nil
}

// Freeze makes the connection a blackhole: whatever is written and not yet
// read waits, in both directions, and so do CloseWrite and Close of the other
// end. Writes succeed until the buffer is full. Deadlines and Close of this
// end work. It is the same from either end.
func (c *Conn) Freeze() { c.link.setFrozen(true, c.in, c.out) }

// Thaw ends Freeze and FreezeWrites, of either end: what has waited arrives.
func (c *Conn) Thaw() { c.link.setFrozen(false, c.in, c.out) }

// FreezeWrites is Freeze for one direction: what this end writes, and its end,
// does not arrive; what the other end writes does.
func (c *Conn) FreezeWrites() { c.link.setFrozen(true, c.out) }

// SetDelay has what this end writes from now on, and its end, arrive d later;
// the order is kept. Zero, the default, is at once.
func (c *Conn) SetDelay(d time.Duration) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	c.out.delay = d
}

// SetLatency is SetDelay for both directions.
func (c *Conn) SetLatency(d time.Duration) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	c.out.delay, c.in.delay = d, d
}

// Cut breaks the connection as a reset does: the calls of both ends fail at
// once with ECONNRESET, and bytes that were not read are lost. It works on a
// frozen connection too, and is the same from either end.
func (c *Conn) Cut() {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	c.link.cut = true
	c.link.notifyLocked()
}

func (c *Conn) LocalAddr() net.Addr  { return c.local }
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

func (c *Conn) SetDeadline(t time.Time) error {
	return c.setDeadline(t, &c.in.readDeadline, &c.out.writeDeadline)
}

func (c *Conn) SetReadDeadline(t time.Time) error {
	return c.setDeadline(t, &c.in.readDeadline)
}

func (c *Conn) SetWriteDeadline(t time.Time) error {
	return c.setDeadline(t, &c.out.writeDeadline)
}

func (c *Conn) setDeadline(t time.Time, fields ...*time.Time) error {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if c.closedLocked() {
		return c.opError("set", net.ErrClosed)
	}
	for _, field := range fields {
		*field = t
	}
	c.link.notifyLocked()
	return nil
}

// await calls try under the mutex until it returns something else than
// errWait, and waits between the calls for news of h.
func (c *Conn) await(h *half, deadline *time.Time, try func() error) error {
	for {
		wake, until, err := c.attempt(h, deadline, try)
		if err != errWait {
			return err
		}
		wait(wake, until)
	}
}

func (c *Conn) attempt(h *half, deadline *time.Time, try func() error) (<-chan struct{}, time.Time, error) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if c.closedLocked() {
		return nil, time.Time{}, net.ErrClosed
	}
	if !deadline.IsZero() && !time.Now().Before(*deadline) {
		return nil, time.Time{}, os.ErrDeadlineExceeded
	}
	if err := try(); err != errWait {
		return nil, time.Time{}, err
	}
	until := *deadline
	if _, next := h.readyLocked(); h == c.in && !next.IsZero() && !h.frozen && (until.IsZero() || next.Before(until)) {
		until = next
	}
	return h.wake.waitLocked(), until, errWait
}

func (c *Conn) closedLocked() bool { return c.in.readerGone }

func (c *Conn) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: c.local.Network(), Source: c.local, Addr: c.remote, Err: err}
}
