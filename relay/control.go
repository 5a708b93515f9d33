package relay

import (
	"errors"
	"io"
	"log/slog"
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
	if err := s.admitHost(); err != nil {
		s.writeError(w, r, hostID, err)
		return
	}
	conn, err := transport.Accept(w, r, &transport.AcceptOptions{Options: transport.Options{
		ReadLimit: transport.MaxControlFrame, WriteTimeout: s.cfg.ControlWriteTimeout,
		CloseTimeout: s.cfg.CloseTimeout, BufferSize: controlBuffer,
	}})
	if err != nil {
		s.stats.hosts.Add(-1)
		return
	}
	c := &controlConn{srv: s, hub: s.registry.acquire(hostID), conn: conn, att: att}
	if !id.ExpiresAt.IsZero() {
		c.expiry = time.AfterFunc(time.Until(id.ExpiresAt), func() { s.spawn(c.expired) })
	}
	// The handler returns, so that net/http's buffers and stack are freed.
	if !s.spawn(c.run) {
		conn.CloseNow()
		s.stats.hosts.Add(-1)
		s.registry.release(c.hub)
	}
}

// run waits for frames until the socket ends. Each one is read and handled in a
// goroutine that ends with it: a stack that has grown never shrinks while its
// goroutine waits, and run's is what an idle host costs.
func (c *controlConn) run() {
	c.srv.spawn(c.attach)
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

// leave moves the socket to state to, takes it out of routing and settles its
// pending dials with err. It returns the state before.
func (c *controlConn) leave(to controlState, err error) (was controlState) {
	was, removed, pending := c.hub.leave(c, to)
	for _, d := range pending {
		c.srv.tickets.take(d.ticket)
		d.settle(outcome{err: err})
	}
	if removed {
		c.srv.linger(c.hub)
	}
	return was
}

// replaced retires c because a newer socket of its host took over: the Store
// has marked it already.
func (c *controlConn) replaced() {
	if c.leave(stateRetired, errReplaced) >= stateRetired {
		return
	}
	c.srv.stats.replaced.Add(1)
	c.conn.Close(transport.CloseReplaced, "replaced by a newer connection")
	c.detachedHook(store.ReasonReplaced)
}

// retire takes the socket out of routing for ever: the mark is written to the
// Store before the socket is closed.
func (c *controlConn) retire(why store.Reason, code transport.CloseCode, reason string) {
	was := c.leave(stateRetired, errGone)
	if was >= stateRetired {
		return
	}
	if why == store.ReasonStale {
		c.srv.stats.stale.Add(1)
	}
	if was == stateCurrent {
		ctx, cancel := c.srv.storeContext()
		err := c.srv.cfg.Store.Retire(ctx, c.att.Ref(), why)
		cancel()
		c.srv.outage.observe(err)
	}
	c.conn.Close(code, reason)
	c.detachedHook(why)
}

// ended cleans up after the socket's end. A late end of a retired socket
// touches nothing but itself.
func (c *controlConn) ended(err error) {
	was := c.leave(stateEnded, errGone)
	c.conn.CloseNow()
	if was == stateCurrent {
		c.detach()
		c.detachedHook(store.ReasonGone)
		c.srv.log.Info("host left", slog.String("host", c.hub.hostID), slog.Any("reason", endReason(err)))
	}
	c.srv.stats.hosts.Add(-1)
	c.srv.registry.release(c.hub)
	<-c.conn.Done() // its closing goroutines, CloseTimeout at most
}

// detach tells the Store that the socket ended.
func (c *controlConn) detach() {
	err := c.srv.disown(c.att.Ref())
	c.srv.outage.observe(err)
	if err != nil {
		c.srv.outage.owe(c.att.Ref())
	}
}

func (c *controlConn) expired() {
	c.retire(store.ReasonGone, transport.CloseUnauthorized, "credentials expired")
}

func (c *controlConn) detachedHook(why store.Reason) {
	if h := c.srv.cfg.Hooks.HostDetached; h != nil {
		h(c.att, why)
	}
}

// endReason is the close code and reason of err, for a log.
func endReason(err error) string {
	var ce *transport.CloseError
	if errors.As(err, &ce) {
		return strconv.Itoa(int(ce.Code)) + " " + ce.Reason
	}
	return "connection lost"
}
