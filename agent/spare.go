package agent

import (
	"net/http"
	"time"

	"github.com/dialback/dialback/transport"
)

// runSpare dials a data socket in advance, and serves the stream that the relay
// makes of it.
func (d *dial) runSpare() {
	s := d.park()
	d.control.endDial()
	if s == nil {
		return
	}
	conn := s.conn
	expiry := time.AfterFunc(d.r.cfg.SpareTimeout, func() { s.closeWith(transport.CloseNormal, "a spare that nobody needed") })
	f, err := readOpen(conn)
	if !expiry.Stop() || err != nil {
		s.closeWith(transport.CloseProtocolError, "a spare begins with stream:open")
		return
	}
	end, refusal := d.openOn(s, f)
	if refusal != nil {
		d.r.refusedOn(s, StreamInfo{ID: f.Stream, Service: f.Service}, refusal)
		return
	}
	if err := conn.Write(transport.Text, transport.Encode(transport.Opened{})); err != nil {
		end.abandon()
		s.closeWith(transport.CloseInternal, "")
		return
	}
	end.serve(s)
}

// park dials back, and makes the dial in flight a spare. Without success it has
// told whom it concerns, and returns nil.
func (d *dial) park() *dataSocket {
	conn, err := d.dialBack()
	if err != nil {
		d.fail(err, refuse(http.StatusBadGateway, "dial-back failed"))
		return nil
	}
	d.r.mu.Lock()
	s := d.landLocked(conn)
	d.r.mu.Unlock()
	if s == nil {
		conn.CloseNow() // canceled
	}
	return s
}

// readOpen reads the first frame of a spare.
func readOpen(conn transport.Conn) (transport.StreamOpen, error) {
	f, err := transport.ReadFrame(conn)
	if err != nil {
		return transport.StreamOpen{}, err
	}
	open, ok := f.(transport.StreamOpen)
	if !ok {
		return transport.StreamOpen{}, transport.ErrUnknownFrame
	}
	return open, nil
}

// openOn opens the service for a stream on the spare s. The stream is counted
// as opened only once the service is reached, so that a dial beside it may
// still win; bytes flow after that.
func (d *dial) openOn(s *dataSocket, f transport.StreamOpen) (endpoint, *refusal) {
	r := d.r
	service, refusal := r.serviceFor(f.Service, f.Proto)
	if refusal != nil {
		return nil, refusal
	}
	r.mu.Lock()
	refusal = d.mayOpenLocked(f)
	r.mu.Unlock()
	if refusal != nil {
		return nil, refusal
	}
	info := StreamInfo{ID: f.Stream, Service: f.Service}
	end, err := r.open(r.ctx, service, info)
	if err != nil {
		if r.ctx.Err() != nil { // not the service's fault
			return nil, refuse(http.StatusServiceUnavailable, "agent stopping")
		}
		return nil, asRefusal(err)
	}
	r.mu.Lock()
	refusal = d.mayOpenLocked(f)
	if refusal == nil {
		r.openings.bySpare(f.Stream, time.Now())
		s.beginLocked(info)
	}
	r.mu.Unlock()
	if refusal != nil {
		end.abandon()
		return nil, refusal
	}
	return end, nil
}

// mayOpenLocked decides whether a spare may become that stream.
func (d *dial) mayOpenLocked(f transport.StreamOpen) *refusal {
	r := d.r
	switch {
	case r.stopping:
		return refuse(http.StatusServiceUnavailable, "agent stopping")
	case d.gen != r.generation:
		return refuse(http.StatusServiceUnavailable, "spare of another generation") // invariant I1
	case len(f.Stream) > maxStreamID:
		return errStreamID
	case r.openings.mayBeOpen(f.Stream, d.forgotten, time.Now()):
		return refuse(http.StatusServiceUnavailable, transport.ReasonAlreadyOpen)
	}
	return nil
}

// refusedOn tells the relay on the data socket itself, and whom else it concerns.
func (r *runner) refusedOn(s *dataSocket, info StreamInfo, why *refusal) {
	_ = s.conn.Write(transport.Text, transport.Encode(transport.Refuse{Status: why.status, Reason: why.reason}))
	s.conn.CloseSlowly(transport.CloseNormal, "")
	s.release()
	r.noteRefused("stream refused", info, why)
}
