package relay

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/transport"
)

// opening is the data socket of a stream that is opened on a spare. It is a
// transport.Conn from the first moment: what is written goes out at once, behind
// stream:open, and the first Read waits for the agent's answer. So a stream
// costs one round trip.
//
// If the answer does not come within AckTimeout, or the spare ends, the stream
// is dialed as well, under the same stream ID, and the first answer wins. What
// was written is kept until then, maxKept bytes at most, and written again on
// the dialed socket. No service gets it twice: an agent opens a stream ID once,
// so the dial goes to the very process that has the spare, unless nothing has
// been written or the spare is known to have opened nothing.
//
// The other methods of a transport.Conn than Reader, Write, Writer, Ping and
// the closing ones are meant for after the answer.
type opening struct {
	// Immutable after openOn.
	srv      *Server
	hub      *hub
	sp       *spare
	streamID string
	choose   chooseSpec
	ctx      context.Context // ends with the answer, the client or DialTimeout
	cancel   context.CancelCauseFunc
	hurry    chan struct{} // has room for one: the spare's host was replaced

	// settled is closed when the answer is known: then either err is set, or
	// conn, att and via.
	settled chan struct{}
	conn    transport.Conn
	att     store.Attachment
	via     string
	err     error

	// Guarded by mu until settled.
	mu     sync.Mutex
	kept   []keptMessage
	size   int  // bytes of kept
	alone  bool // the spare opens nothing any more: only the dial is left
	closed bool // the dial's socket is being written to, or all is over
	slowly *transport.CloseError
}

// keptMessage is a message that may have to be written again.
type keptMessage struct {
	t transport.MessageType
	p []byte
}

// maxKept bounds what is kept of a stream until it is open, in bytes; more has
// to wait.
const maxKept = 64 << 10

// openError is what Reader and Write of an opening say when there is no stream:
// err is one of those of open.
type openError struct{ err error }

func (e *openError) Error() string { return e.err.Error() }
func (e *openError) Unwrap() error { return e.err }

// openOn opens a stream on sp; nil if it has ended. ctx is the stream's.
func (s *Server) openOn(ctx context.Context, sp *spare, streamID string, spec dialSpec, choose chooseSpec) *opening {
	o := &opening{srv: s, hub: sp.hub, sp: sp, streamID: streamID, choose: choose, hurry: make(chan struct{}, 1), settled: make(chan struct{})}
	frame := transport.Encode(transport.StreamOpen{Stream: streamID, Service: spec.service, Proto: spec.proto})
	if sp.conn.Write(transport.Text, frame) != nil {
		sp.close()
		return nil
	}
	ctx, o.cancel = context.WithCancelCause(ctx)
	ctx, stop := context.WithTimeoutCause(ctx, s.cfg.DialTimeout, ErrNoDialBack)
	o.ctx = ctx
	s.registry.acquire(o.hub.hostID)
	run := func() {
		defer s.registry.release(o.hub)
		defer stop()
		o.run()
	}
	if !s.spawn(run) {
		s.registry.release(o.hub)
		stop()
		sp.close()
		return nil
	}
	s.stats.spareOpens.Add(1)
	return o
}

// impatient has the stream dialed without further waiting. It does not block.
func (o *opening) impatient() {
	select {
	case o.hurry <- struct{}{}:
	default:
	}
}

// dialed is what came of the dial beside the spare.
type dialed struct {
	opened
	err error
}

// run waits for the answer.
func (o *opening) run() {
	defer o.hub.spares.race(o)()
	patience := time.NewTimer(o.srv.cfg.AckTimeout)
	defer patience.Stop()
	defer o.cancel(nil)
	dial := make(chan dialed, 1)
	defer dropLate(dial)                                // the channel itself: dial may be nil by then
	answer, dialing, waiting := o.sp.first, false, true // for the spare, for the dial, for either
	for waiting {
		select {
		case <-answer:
			answer = nil
			if o.answered() {
				return
			}
		case <-patience.C:
		case <-o.hurry:
		case d := <-dial:
			switch {
			case d.err == nil:
				o.replay(d.opened)
				return
			case !alreadyOpen(d.err):
				o.fail(o.admitBegun(d.err))
				return
			}
			// The spare has opened it: its answer is on the way, unless its
			// path is broken.
			dial, dialing = nil, true
		case <-o.ctx.Done():
			o.fail(o.admitBegun(openEnded(o.ctx)))
			return
		}
		if !dialing {
			dialing = true
			if !o.srv.spawn(func() { o.dial(dial) }) {
				o.fail(o.admitBegun(ErrDraining))
				return
			}
		}
		waiting = answer != nil || dial != nil
	}
	o.fail(ErrStreamClosed)
}

// answered looks at what the spare has said; false means that the stream must
// be dialed.
func (o *opening) answered() bool {
	switch f := o.sp.frame.(type) {
	case transport.Opened:
		if !o.onSpare() {
			return false
		}
		o.settle(o.sp.conn, o.sp.att, o.sp.via)
		return true
	case transport.Refuse:
		refused := &RefusedError{f.Status, f.Reason}
		if alreadyOpen(refused) {
			return false // the dial beside it has
		}
		if o.srv.hasMoved(o.ctx, o.hub, o.sp.att) {
			o.giveUpSpare() // it has opened nothing, and the host is elsewhere
			return false
		}
		o.fail(refused)
		return true
	case nil:
		if errors.Is(o.sp.err, transport.ErrUnknownFrame) || errors.Is(o.sp.err, transport.ErrMalformed) {
			o.fail(errFirstFrame)
			return true
		}
		return false // it has ended
	}
	o.fail(errFirstFrame)
	return true
}

// admitBegun is the typed error for a stream that was not opened because of err.
// Most errors of an open say that the service has not been reached; once bytes
// went out on the spare nobody knows that.
func (o *opening) admitBegun(err error) error {
	o.mu.Lock()
	begun := len(o.kept) > 0 && !o.alone
	o.mu.Unlock()
	if !begun {
		return err
	}
	for _, as := range []error{ErrStreamClosed, ErrRevoked, ErrUnauthorized, errClientGone} {
		if errors.Is(err, as) {
			return err
		}
	}
	return Deny(ErrStreamClosed, "the stream may have begun; then: "+Describe(err).Message)
}

// errFirstFrame: the host breaks the protocol.
var errFirstFrame = &RefusedError{Status: 502, Reason: "the host's first frame is not stream:opened"}

func alreadyOpen(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && refused.Reason == transport.ReasonAlreadyOpen
}

// dial dials the stream, in the ordinary way.
func (o *opening) dial(result chan dialed) {
	data, err := o.srv.openBy(o.ctx, o.hub, o.streamID, func(att store.Attachment) (dialSpec, error) {
		if !o.mayGoTo(att) {
			return dialSpec{}, errOtherProcess
		}
		return o.choose(att)
	}, false)
	result <- dialed{data, err}
	if o.isSettled() {
		dropLate(result)
	}
}

// dropLate closes a dialed socket that nobody has taken.
func dropLate(result <-chan dialed) {
	select {
	case d := <-result:
		if d.err == nil {
			d.conn.Close(transport.CloseUnknown, "nobody waits any more")
		}
	default:
	}
}

func (o *opening) isSettled() bool {
	select {
	case <-o.settled:
		return true
	default:
		return false
	}
}

// mayGoTo reports whether the stream may be dialed at att's process: it is the
// spare's own, which opens a stream once, or nobody else can have the stream.
func (o *opening) mayGoTo(att store.Attachment) bool {
	o.mu.Lock()
	if o.closed { // the spare has it, and nothing of it is kept any more
		o.mu.Unlock()
		return false
	}
	same := att.Instance != "" && att.Instance == o.sp.att.Instance
	free := o.alone || len(o.kept) == 0
	if !same && free {
		o.alone = true
	}
	o.mu.Unlock()
	if !same && free {
		o.sp.conn.CloseNow()
	}
	return same || free
}

// giveUpSpare takes the spare, which will not open the stream, out of the race.
func (o *opening) giveUpSpare() {
	o.mu.Lock()
	o.alone = true
	o.mu.Unlock()
	o.sp.close()
}

// settle ends the wait: conn is the stream's data socket.
func (o *opening) settle(conn transport.Conn, att store.Attachment, via string) {
	o.mu.Lock()
	o.conn, o.att, o.via = conn, att, via
	o.kept = nil
	o.closed = true
	slowly := o.slowly
	close(o.settled)
	o.mu.Unlock()
	if slowly != nil {
		conn.CloseSlowly(slowly.Code, slowly.Reason)
	}
}

// replay writes what was kept on the dialed socket, which has won.
func (o *opening) replay(d opened) {
	o.mu.Lock()
	o.closed = true // later writes wait for these
	kept := o.kept
	o.mu.Unlock()
	o.sp.conn.CloseNow()
	for _, m := range kept {
		if d.conn.Write(m.t, m.p) != nil {
			break // its reader says why
		}
	}
	o.settle(d.conn, d.att, d.via)
}

// fail ends the wait: there is no stream.
func (o *opening) fail(err error) {
	o.mu.Lock()
	o.closed = true
	o.err = &openError{err}
	o.kept = nil
	close(o.settled)
	o.mu.Unlock()
	if errors.Is(err, ErrRefused) {
		o.sp.close()
	} else {
		o.sp.conn.Close(transport.CloseGoingAway, "nobody waits any more")
	}
}

// await waits for the answer.
func (o *opening) await(ctx context.Context) error {
	select {
	case <-o.settled:
	case <-ctx.Done():
		o.cancel(context.Cause(ctx))
		<-o.settled
	}
	var failed *openError
	if errors.As(o.err, &failed) {
		return failed.err
	}
	return nil
}
