package agent

import (
	"io"
	"strings"
	"sync"
	"time"

	"github.com/dialback/dialback/transport"
)

const (
	// sendQueueSize bounds the frames that wait to be written; a socket that
	// lets so many wait is given up.
	sendQueueSize = 1024
	// maxDrainDelay bounds what a draining relay can ask for.
	maxDrainDelay = 5 * time.Minute
)

// control is one control socket. Three goroutines serve it: run reads,
// sendLoop writes, beatLoop keeps the heartbeat; none can hold up another.
type control struct {
	// Immutable after startControl.
	r    *runner
	conn transport.Conn
	seq  uint64 // grows from socket to socket of this agent
	// token is what the relay got for this socket; empty for none.
	token string
	// sendq carries frames to sendLoop, and at last a nil to close the socket
	// with 1000. Sent to without blocking, by any goroutine; never closed.
	sendq chan []byte
	// drain carries the delay of a drain frame from run to the reconnect
	// loop. Room for one, so that run never waits; never closed.
	drain chan time.Duration
	// done is closed by run when the socket takes and brings nothing more;
	// err is set before that.
	done chan struct{}
	err  error

	// Owned by run.
	confirmed bool

	// Guarded by mu.
	mu           sync.Mutex
	cause        error // why this side gave up; nil while it has not
	heartbeat    *transport.Heartbeat
	predecessors []*control // to be closed once this one is confirmed
	dials        int        // of this socket that still need it
	retiring     bool       // it takes no more dials, and is closed after the last one
}

// startControl serves conn until it ends.
func startControl(r *runner, conn transport.Conn, seq uint64, token string, predecessors []*control) *control {
	c := &control{
		r:            r,
		conn:         conn,
		seq:          seq,
		token:        token,
		sendq:        make(chan []byte, sendQueueSize),
		drain:        make(chan time.Duration, 1),
		done:         make(chan struct{}),
		heartbeat:    transport.NewHeartbeat(r.cfg.HeartbeatInterval, r.cfg.SilenceTimeout, time.Now()),
		predecessors: predecessors,
	}
	if conn.Subprotocol() == transport.Subprotocol {
		c.heartbeat.Confirmed(time.Now())
	}
	r.tasks.Add(3)
	go c.run()
	go c.sendLoop()
	go c.beatLoop()
	return c
}

// run reads until the socket ends. It does not wait for a close handshake: a
// peer that has vanished never answers one.
func (c *control) run() {
	defer c.r.tasks.Done()
	err := c.read()
	c.giveUp(err)
	c.mu.Lock()
	c.err = c.cause
	c.mu.Unlock()
	close(c.done)
	if c.confirmed {
		c.r.offline(c.err)
	}
	<-c.conn.Done()
}

// read handles frame after frame and returns the error that ended it.
func (c *control) read() error {
	for {
		t, message, err := c.conn.Reader()
		if err != nil {
			return err
		}
		if t != transport.Text {
			// Junk, never a reason to disconnect, and no sign of life: bytes
			// that are not frames may be anybody's.
			if _, err := io.Copy(io.Discard, message); err != nil {
				return err
			}
			continue
		}
		p, err := io.ReadAll(message)
		if err != nil {
			return err
		}
		c.heard()
		f, err := transport.Decode(p)
		if err != nil {
			c.r.stats.framesIgnored.Add(1)
			continue
		}
		c.handle(f)
	}
}

func (c *control) handle(f transport.Frame) {
	switch f := f.(type) {
	case transport.StreamDial:
		c.r.answer(c, f)
	case transport.Cancel:
		c.r.cancel(f.Ticket)
	case transport.Pong:
		c.confirm(transport.Hello{})
	case transport.Hello:
		if c.token != "" && strings.Contains(f.Node, c.token) {
			f.Node = "" // a name goes to logs
		}
		c.r.greeted(c, f.Generation)
		c.confirm(f)
	case transport.Drain:
		ms := min(max(f.ReconnectAfterMs, 0), maxDrainDelay.Milliseconds())
		select {
		case c.drain <- time.Duration(ms) * time.Millisecond:
		default: // told already
		}
	default:
		c.r.stats.framesIgnored.Add(1)
	}
}

// confirm notes that the code that does the routing holds this socket: from
// now on silence means something, and what drains is no longer needed.
func (c *control) confirm(h transport.Hello) {
	if c.confirmed {
		return
	}
	c.confirmed = true
	c.mu.Lock()
	c.heartbeat.Confirmed(time.Now())
	c.mu.Unlock()
	c.r.online(h)
	for _, old := range c.takePredecessors() {
		old.retire()
	}
}

// takePredecessors returns the sockets that wait for this one's confirmation
// and leaves none.
func (c *control) takePredecessors() []*control {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.predecessors
	c.predecessors = nil
	return old
}

// beginDial counts a dial of this socket. It returns false once the socket
// retires: its successor takes the dials.
func (c *control) beginDial() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retiring {
		return false
	}
	c.dials++
	return true
}

// endDial says that a dial of this socket no longer needs it.
func (c *control) endDial() {
	c.mu.Lock()
	c.dials--
	over := c.retiring && c.dials == 0
	c.mu.Unlock()
	if over {
		c.queue(nil)
	}
}

// retire closes a socket whose successor is confirmed, after its dials in
// flight. That has a bound: that of a dial. It is called once.
func (c *control) retire() {
	c.mu.Lock()
	c.retiring = true
	over := c.dials == 0
	c.mu.Unlock()
	if over {
		c.queue(nil)
	}
}

// ended reports whether the socket takes and brings nothing more.
func (c *control) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// stop closes the socket because Run ends.
func (c *control) stop() {
	for _, old := range c.takePredecessors() {
		old.stop()
	}
	c.conn.Close(transport.CloseGoingAway, "agent stopping")
}

// send queues a frame. A socket whose queue is full takes nothing any more.
func (c *control) send(f transport.Frame) { c.queue(transport.Encode(f)) }

func (c *control) queue(p []byte) {
	select {
	case c.sendq <- p:
	default:
		c.giveUp(ErrOverflow)
	}
}

// giveUp cuts the connection; the first cause counts.
func (c *control) giveUp(cause error) {
	c.mu.Lock()
	if c.cause == nil {
		c.cause = cause
	}
	c.mu.Unlock()
	select {
	case <-c.r.ctx.Done():
		// Let the close frame of stop have its time; Close bounds it.
		c.conn.Close(transport.CloseGoingAway, "agent stopping")
	default:
		c.conn.CloseNow()
	}
}

// sendLoop writes what is queued.
func (c *control) sendLoop() {
	defer c.r.tasks.Done()
	for {
		select {
		case <-c.done:
			return
		case p := <-c.sendq:
			if p == nil {
				c.conn.Close(transport.CloseNormal, "")
				return
			}
			if err := c.conn.Write(transport.Text, p); err != nil {
				c.giveUp(err)
				return
			}
		}
	}
}

// heard notes a text frame from the relay.
func (c *control) heard() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heartbeat.Heard(time.Now())
}

// beatLoop sends pings when they are due, the first one at once, and gives the
// socket up when the relay has been silent for too long.
func (c *control) beatLoop() {
	defer c.r.tasks.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-c.done:
			return
		case <-timer.C:
		}
		wait, alive := c.pulse(time.Now())
		if !alive {
			c.giveUp(ErrSilent)
			return
		}
		timer.Reset(wait)
	}
}

// pulse pings if that is due. It returns when to be called again, and whether
// the relay still counts as there.
func (c *control) pulse(now time.Time) (wait time.Duration, alive bool) {
	c.mu.Lock()
	ping, dead, wait := c.heartbeat.Due(now)
	if ping {
		c.heartbeat.Pinged(now)
		_, dead, wait = c.heartbeat.Due(now)
	}
	c.mu.Unlock()
	if ping {
		c.send(transport.Ping{})
	}
	return wait, !dead
}
