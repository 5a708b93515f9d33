package agent

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/dialback/dialback/transport"
)

// dial is the answer to one stream:dial: the service is opened, then a data
// socket is dialed back, then the two are one stream.
type dial struct {
	// Immutable after admit.
	r       *runner
	control *control // where it came from; refusals go there
	ticket  string   // never log it
	info    StreamInfo
	service service         // nil: the data socket is a spare
	gen     uint64          // the generation of the dial
	ctx     context.Context // ends when the relay cancels the dial, or with Run
	// forgotten is how many openings were not remembered when the dial began.
	forgotten uint64
}

// answer takes a stream:dial from the control socket's reader. It does not
// block.
func (r *runner) answer(c *control, f transport.StreamDial) {
	if f.Ticket == "" {
		r.stats.framesIgnored.Add(1)
		return
	}
	c.send(transport.Ack{Ticket: f.Ticket})
	d, err := r.admit(c, f)
	if err != nil {
		r.refused(c, f.Ticket, StreamInfo{ID: f.Stream, Service: f.Service}, err)
		return
	}
	if d == nil {
		return // a repetition
	}
	go d.run()
}

// admit decides whether a dial is answered with a stream, and counts it. A
// dial that is in flight already is neither a refusal nor a new one.
func (r *runner) admit(c *control, f transport.StreamDial) (*dial, *refusal) {
	var service service
	switch f.Kind {
	case transport.KindTCP:
		var refusal *refusal
		if service, refusal = r.serviceFor(f.Service, f.Proto); refusal != nil {
			return nil, refusal
		}
	case transport.KindSpare:
	default:
		return nil, refuse(http.StatusBadGateway, "unsupported kind %q", f.Kind)
	}
	if !c.beginDial() {
		return nil, refuse(http.StatusServiceUnavailable, "dial on a retired control socket")
	}
	d := &dial{
		r:       r,
		control: c,
		ticket:  f.Ticket,
		info:    StreamInfo{ID: f.Stream, Service: f.Service},
		service: service,
		gen:     f.Generation,
	}
	fresh, refusal := r.begin(d)
	if !fresh {
		c.endDial()
		return nil, refusal
	}
	return d, nil
}

// begin counts d, if it is neither refused nor in flight already.
func (r *runner) begin(d *dial) (fresh bool, why *refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	why = r.admitLocked(d)
	if why != nil || r.dials[d.ticket] != nil {
		return false, why
	}
	ctx, cancel := context.WithCancelCause(r.ctx)
	r.active++
	r.dials[d.ticket] = cancel
	r.tasks.Add(1)
	d.ctx, d.forgotten = ctx, r.openings.forgotten
	return true, nil
}

// serviceFor returns the service that a stream asks for.
func (r *runner) serviceFor(name, proto string) (service, *refusal) {
	h, ok := r.cfg.Services[name]
	if !ok {
		return nil, refuse(http.StatusNotFound, "unknown service %q", name)
	}
	if proto != h.proto() {
		return nil, refuse(http.StatusBadGateway, "service %q speaks %s, not %q", name, h.proto(), proto)
	}
	return r.services[name], nil
}

func (r *runner) admitLocked(d *dial) *refusal {
	switch {
	case r.stopping:
		return refuse(http.StatusServiceUnavailable, "agent stopping")
	case d.gen != r.generation:
		// Invariant I1: what was sent to a retired socket must not be served,
		// though it may arrive late.
		return refuse(http.StatusServiceUnavailable, "dial of another generation")
	case len(d.info.ID) > maxStreamID:
		return errStreamID
	case r.active >= r.cfg.MaxStreams:
		return refuse(http.StatusTooManyRequests, "limit of %d streams reached", r.cfg.MaxStreams)
	case r.openings.onSpare(d.info.ID, time.Now()):
		return refuse(http.StatusServiceUnavailable, transport.ReasonAlreadyOpen)
	}
	return nil
}

// refused tells the relay, and whom else it concerns.
func (r *runner) refused(c *control, ticket string, info StreamInfo, why *refusal) {
	c.send(transport.Refuse{Ticket: ticket, Status: why.status, Reason: why.reason})
	r.noteRefused("dial refused", info, why)
}

// noteRefused counts and logs a refusal, and tells the hook.
func (r *runner) noteRefused(what string, info StreamInfo, why *refusal) {
	r.stats.refused.Add(1)
	r.log.Debug(what, "stream", info.ID, "service", info.Service, "status", why.status, "reason", why.reason)
	if f := r.cfg.Hooks.Refused; f != nil {
		r.events.post(func() { f(info, why.status, why.reason) })
	}
}

// cancel ends a dial in flight: its client has left.
func (r *runner) cancel(ticket string) {
	r.mu.Lock()
	cancel := r.dials[ticket]
	r.mu.Unlock()
	if cancel != nil {
		cancel(errCanceled)
	}
}

// run answers the dial.
func (d *dial) run() {
	defer d.r.tasks.Done()
	if d.service == nil {
		d.runSpare()
		return
	}
	s, end := d.connect()
	d.control.endDial()
	if s == nil {
		return
	}
	end.serve(s)
}

// connect opens the service and dials back. Without success it has told whom
// it concerns, and returns nil.
func (d *dial) connect() (*dataSocket, endpoint) {
	end, err := d.r.open(d.ctx, d.service, d.info)
	if err != nil {
		d.fail(err, asRefusal(err))
		return nil, nil
	}
	conn, err := d.dialBack()
	if err != nil {
		end.abandon()
		if unknownTicket(err) {
			// The relay knows: it no longer waits for this ticket.
			d.fail(err, nil)
		} else {
			d.fail(err, refuse(http.StatusBadGateway, "dial-back failed"))
		}
		return nil, nil
	}
	s, refusal := d.establish(conn)
	switch {
	case refusal != nil:
		end.abandon()
		d.r.refusedOn(s, d.info, refusal)
		return nil, nil
	case s == nil:
		end.abandon()
		conn.CloseNow()
		return nil, nil
	}
	if err := conn.Write(transport.Text, transport.Encode(transport.Opened{})); err != nil {
		end.abandon()
		s.closeWith(transport.CloseInternal, "")
		return nil, nil
	}
	return s, end
}

// open opens a service. A panic of the embedder's DialContext is a failure.
func (r *runner) open(ctx context.Context, s service, info StreamInfo) (end endpoint, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("opening a service panicked", "service", info.Service, "panic", p)
			end, err = nil, errOpenPanicked
		}
	}()
	return s.open(ctx, info)
}

// A dial-back that meets a node which goes away, or that a load balancer could
// not deliver, is made again: the next node may well take it.
const (
	dialBackTries = 3
	dialBackPause = 25 * time.Millisecond // doubled each time
)

// dialBack opens the data socket. HandshakeTimeout bounds all tries together.
func (d *dial) dialBack() (conn transport.Conn, err error) {
	ctx, cancel := context.WithTimeout(d.ctx, d.r.cfg.HandshakeTimeout)
	defer cancel()
	pause := dialBackPause
	for range dialBackTries {
		conn, err = d.dialBackOnce(ctx)
		if err == nil || ctx.Err() != nil || unknownTicket(err) {
			return conn, err
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil, err
		case <-t.C:
		}
		pause *= 2
	}
	return conn, err
}

// unknownTicket reports whether the relay has answered that it waits for no
// such dial-back.
func unknownTicket(err error) bool {
	var answered *transport.HandshakeError
	return errors.As(err, &answered) && answered.Status == http.StatusNotFound
}

// dialBackOnce makes one try. It has half of HandshakeTimeout at most: one that
// hangs must leave time for another, and a slow way needs seconds.
func (d *dial) dialBackOnce(ctx context.Context) (transport.Conn, error) {
	cfg := &d.r.cfg
	return transport.Dial(ctx, d.r.url.dial(d.ticket), &transport.DialOptions{
		Options: transport.Options{
			ReadLimit:    -1, // a stream has no message limit
			WriteTimeout: cfg.StallTimeout,
			CloseTimeout: cfg.CloseTimeout,
		},
		Transport:        cfg.Transport,
		HandshakeTimeout: cfg.HandshakeTimeout / 2,
	})
}

// establish makes the dial in flight an open stream, unless it was canceled:
// then there is no dataSocket. A stream that was opened on a spare meanwhile is
// to be refused on the data socket.
func (d *dial) establish(conn transport.Conn) (*dataSocket, *refusal) {
	r := d.r
	r.mu.Lock()
	defer r.mu.Unlock()
	s := d.landLocked(conn)
	if s == nil {
		return nil, nil
	}
	if !r.openings.byDial(d.info.ID, time.Now()) {
		return s, refuse(http.StatusServiceUnavailable, transport.ReasonAlreadyOpen)
	}
	s.beginLocked(d.info)
	return s, nil
}

// landLocked ends the dial in flight: it is a data socket from now on, or nothing
// if it was canceled.
func (d *dial) landLocked(conn transport.Conn) *dataSocket {
	r := d.r
	cancel := r.dials[d.ticket]
	delete(r.dials, d.ticket)
	gone := d.ctx.Err() != nil || r.stopping
	cancel(nil) // nothing uses the dial's context any more
	if gone {
		r.active--
		return nil
	}
	s := &dataSocket{conn: conn, r: r}
	r.streams[s] = struct{}{}
	r.tasks.Add(1)
	return s
}

// beginLocked makes the data socket that of a stream. The hook is queued here,
// so that it comes before that of the end.
func (s *dataSocket) beginLocked(info StreamInfo) {
	s.info, s.begun = info, true
	s.r.stats.streams.Add(1)
	s.r.stats.opened.Add(1)
	if f := s.r.cfg.Hooks.StreamOpened; f != nil {
		s.r.events.post(func() { f(info) })
	}
}

// fail forgets the dial, and refuses it if the relay waits for it.
func (d *dial) fail(err error, why *refusal) {
	r := d.r
	r.mu.Lock()
	r.dials[d.ticket](nil)
	delete(r.dials, d.ticket)
	r.active--
	r.mu.Unlock()
	if context.Cause(d.ctx) == errCanceled || r.ctx.Err() != nil {
		return // nobody waits
	}
	if why != nil {
		r.refused(d.control, d.ticket, d.info, why)
		if why.reason != "dial-back failed" {
			return
		}
	}
	r.stats.dialsFailed.Add(1)
	r.log.Debug("dial-back failed", "stream", d.info.ID, "service", d.info.Service, "err", err)
	if f := r.cfg.Hooks.DialFailed; f != nil {
		r.events.post(func() { f(d.info, err) })
	}
}

// awaitClosed waits for the end of a closed stream's socket, which has a bound
// of its own, and forgets the stream.
func (r *runner) awaitClosed(s *dataSocket) {
	defer r.tasks.Done()
	<-s.conn.Done()
	r.mu.Lock()
	delete(r.streams, s)
	r.active--
	begun := s.begun
	r.mu.Unlock()
	if !begun {
		return // a spare that nobody needed
	}
	r.stats.streams.Add(-1)
	if f := r.cfg.Hooks.StreamClosed; f != nil {
		r.events.post(func() { f(s.info) })
	}
}
