package relay

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/transport"
	"github.com/google/uuid"
)

// controlState is the life of a control socket; it only moves forward.
type controlState uint8

const (
	stateAttaching controlState = iota // accepted, not yet claimed
	stateCurrent                       // routable
	stateRetired                       // never routable again, being closed
	stateEnded                         // the socket is gone
)

// controlConn is the relay's end of one control socket.
type controlConn struct {
	// Immutable after accept.
	srv  *Server
	hub  *hub
	conn transport.Conn
	nth  uint64 // of the control sockets of this process
	// revoked is hub's revocations before AuthorizeHost let the socket in.
	revoked int

	// Written by attach before the hub publishes it, immutable then.
	att store.Attachment

	// Guarded by mu.
	mu       sync.Mutex
	state    controlState
	sendq    [][]byte         // frames that wait for sendLoop
	sending  bool             // sendLoop runs
	pending  map[string]*dial // dials sent on this socket and not settled
	early    [2]uint8         // pings that came before the claim, by their words
	lastPing time.Time
	probing  bool // a protocol ping checks whether the host lives
	stale    *time.Timer
	expiry   *time.Timer
}

// serveControl accepts a host's control socket.
func (s *Server) serveControl(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	// A part of the request line would keep all of it, a token too, for the
	// life of the socket.
	hostID := strings.Clone(q.Get("hostId"))
	if err := checkHostID(hostID); err != nil {
		s.deny(w, r, "", err)
		return
	}
	hub := s.registry.acquire(hostID)
	accepted := false
	defer func() {
		if !accepted {
			s.registry.release(hub)
		}
	}()
	revoked := hub.revocations() // before AuthorizeHost: what it says may be out of date by a revoke
	r, id, err := s.authorize(s.cfg.AuthorizeHost, r, hostID)
	if err != nil {
		s.deny(w, r, hostID, err)
		return
	}
	if !isWebSocket(r) {
		s.writeError(w, r, hostID, badRequest("a control socket is a WebSocket"))
		return
	}
	att := store.Attachment{
		ID: uuid.NewString(), HostID: hostID, NodeID: s.nodeID, Incarnation: s.incarnation,
		Role: store.RoleHost, Proto: 2, ConnectedAt: time.Now(), Meta: id.Meta,
	}
	if n, err := strconv.Atoi(q.Get("proto")); err == nil && n >= 3 {
		att.Proto = n
		if inst, err := uuid.Parse(q.Get("instance")); err == nil {
			att.Instance = inst.String()
			att.Seq, _ = strconv.ParseUint(q.Get("seq"), 10, 64)
		}
		if att.Seq > store.MaxGeneration {
			s.deny(w, r, hostID, badRequest("seq is too large"))
			return
		}
	}
	if err := s.admitHost(hub); err != nil {
		s.writeError(w, r, hostID, err)
		return
	}
	conn, err := transport.Accept(w, r, &transport.AcceptOptions{Subprotocol: transport.Subprotocol, Options: transport.Options{
		ReadLimit: transport.MaxControlFrame, WriteTimeout: s.cfg.ControlWriteTimeout,
		CloseTimeout: s.cfg.CloseTimeout, BufferSize: controlBuffer,
	}})
	if err != nil {
		s.dismissHost(hub)
		return
	}
	c := &controlConn{srv: s, hub: hub, conn: conn, nth: s.controls.Add(1), att: att, revoked: revoked}
	if !id.ExpiresAt.IsZero() {
		c.mu.Lock() // it may fire at once
		c.expiry = time.AfterFunc(time.Until(id.ExpiresAt), func() { s.spawn(c.expired) })
		c.mu.Unlock()
	}
	// The handler returns, so that net/http's buffers and stack are freed.
	if accepted = s.spawn(c.run); !accepted {
		conn.CloseNow()
		s.dismissHost(hub)
	}
}

// run waits for frames until the socket ends. Each one is read and handled in a
// goroutine that ends with it: a stack that has grown never shrinks while its
// goroutine waits, and run's is what an idle host costs.
func (c *controlConn) run() {
	if !c.srv.spawn(c.attach) {
		c.close(transport.CloseRestart, "node is restarting")
	}
	for {
		c.conn.Await()
		var frame sync.WaitGroup
		var err error
		frame.Go(func() { err = c.next() })
		frame.Wait()
		if err != nil {
			c.ended(err)
			return
		}
	}
}

// frameBufs are buffers for one control frame.
var frameBufs = sync.Pool{New: func() any { b := make([]byte, 0, 256); return &b }}

// next reads and handles one frame.
func (c *controlConn) next() error {
	t, r, err := c.conn.Reader()
	if err != nil {
		return err
	}
	buf := frameBufs.Get().(*[]byte)
	p, err := readAll(r, (*buf)[:0])
	if err != nil {
		return err
	}
	c.handle(t, p)
	if cap(p) <= 4<<10 { // larger ones are rare
		*buf = p
		frameBufs.Put(buf)
	}
	return nil
}

// readAll appends all of r to buf.
func readAll(r io.Reader, buf []byte) ([]byte, error) {
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
	}
}

// handle obeys one frame. What is malformed, binary or unknown is dropped in
// silence: a heartbeat must never become a new reason to disconnect.
func (c *controlConn) handle(t transport.MessageType, p []byte) {
	if t != transport.Text {
		c.srv.stats.ignored.Add(1)
		return
	}
	f, err := transport.Decode(p)
	if err != nil {
		c.srv.stats.ignored.Add(1)
		return
	}
	switch f := f.(type) {
	case transport.Ping:
		c.pinged(f)
	case transport.Ack:
		if d := c.lookup(f.Ticket); d != nil {
			d.acked()
		}
	case transport.Refuse:
		if d := c.lookup(f.Ticket); d != nil {
			c.srv.tickets.take(d.ticket)
			d.settle(outcome{err: &RefusedError{f.Status, f.Reason}})
		}
	default:
		c.srv.stats.ignored.Add(1)
	}
}

// lookup returns the unsettled dial of this very socket, or nil: an answer is
// matched by its ticket, and another socket's tickets are not this one's.
func (c *controlConn) lookup(ticket string) *dial {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != stateCurrent {
		return nil
	}
	return c.pending[ticket]
}

// pinged takes a ping of the host.
func (c *controlConn) pinged(p transport.Ping) {
	c.srv.stats.pings.Add(1)
	words := 0
	if p.Op {
		words = 1
	}
	c.mu.Lock()
	switch c.state {
	case stateAttaching:
		c.early[words] = min(c.early[words]+1, pingCap)
		c.mu.Unlock()
		return
	case stateCurrent:
		c.lastPing = time.Now()
		if c.stale != nil {
			c.stale.Reset(c.srv.cfg.StaleAfter)
		}
		c.mu.Unlock()
		c.srv.pinger.add(c, words, 1)
		return
	}
	c.mu.Unlock() // retired: its close is on the way, and no pong
}

// sendDial sends d on this socket, if it is still the current one.
func (c *controlConn) sendDial(d *dial) bool {
	f := transport.StreamDial{Ticket: d.ticket, Kind: d.spec.kind, Path: d.spec.path, Query: d.spec.query}
	if c.att.Proto >= 3 {
		f.Generation, f.Stream, f.Service, f.Proto = c.att.Generation, d.streamID, d.spec.service, d.spec.proto
	}
	frame := transport.Encode(f)
	c.mu.Lock()
	if c.state != stateCurrent {
		c.mu.Unlock()
		return false
	}
	full := len(c.sendq) >= c.srv.cfg.SendQueue
	if !full {
		if c.pending == nil {
			c.pending = make(map[string]*dial)
		}
		c.pending[d.ticket] = d
	}
	c.mu.Unlock()
	if full {
		c.retire(store.ReasonStale, transport.CloseStale, "control send queue is full")
		return false
	}
	if c.att.Proto >= 3 {
		d.expectAck(c.srv.cfg.AckTimeout, c.suspect)
	}
	c.srv.stats.dials.Add(1)
	return c.send(frame)
}

// forget ends the bookkeeping of d; cancel tells the host not to dial.
func (c *controlConn) forget(d *dial, cancel bool) {
	c.mu.Lock()
	_, was := c.pending[d.ticket]
	delete(c.pending, d.ticket)
	if len(c.pending) == 0 {
		c.pending = nil
	}
	tell := cancel && was && c.state == stateCurrent && c.att.Proto >= 3
	c.mu.Unlock()
	if tell {
		c.send(transport.Encode(transport.Cancel{Ticket: d.ticket}))
	}
}

// send queues a frame for sendLoop, which runs only while there is something
// to send: an idle host costs one goroutine, not two.
func (c *controlConn) send(frame []byte) bool {
	c.mu.Lock()
	if c.state != stateCurrent {
		c.mu.Unlock()
		return false
	}
	if len(c.sendq) >= c.srv.cfg.SendQueue {
		c.mu.Unlock()
		c.retire(store.ReasonStale, transport.CloseStale, "control send queue is full")
		return false
	}
	c.sendq = append(c.sendq, frame)
	start := !c.sending
	c.sending = true
	c.mu.Unlock()
	if start {
		c.startSending()
	}
	return true
}

// startSending starts sendLoop. A Server that closes sends nothing more: its
// Close closes the socket with a reason.
func (c *controlConn) startSending() { c.srv.spawn(c.sendLoop) }

// sendLoop writes the queued frames in order. A write that stalls cuts the
// connection (ControlWriteTimeout), which run sees.
func (c *controlConn) sendLoop() {
	for {
		c.mu.Lock()
		q := c.sendq
		c.sendq = nil
		if len(q) == 0 || c.state >= stateRetired {
			c.sending = false
			c.sendq = nil
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		for i, frame := range q {
			if i > 0 && c.isRetired() { // what waited for a retired socket dies here
				break
			}
			if err := c.conn.Write(transport.Text, frame); err != nil {
				break
			}
		}
	}
}

func (c *controlConn) isRetired() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state >= stateRetired
}
