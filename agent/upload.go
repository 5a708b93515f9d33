package agent

import (
	"errors"
	"io"
	"time"

	"github.com/dialback/dialback/transport"
)

// upload sends the body of a request to the service, while the answer may
// already come. It reads the data socket, up to the end of the body, also when
// the service does not want it any more.
type upload struct {
	// Immutable after startUpload.
	s     *httpStream
	local *localConn // nil if there is no service that takes it
	probe *probe     // of the stream, while the service takes nothing

	body    body
	dropped bool // the service takes no more

	// done is closed when whole and err are set.
	done  chan struct{}
	whole bool  // the service has taken all
	err   error // the body was not whole: the stream has ended
}

// startUpload takes the reading side of s over, until done is closed. What is
// dropped is only read.
func startUpload(s *httpStream, local *localConn, b body, dropped bool) *upload {
	u := &upload{s: s, local: local, body: b, dropped: dropped, done: make(chan struct{})}
	u.probe = newProbe(s.conn, s.leave)
	s.svc.tasks.Add(1)
	go u.run()
	return u
}

func (u *upload) run() {
	defer u.s.svc.tasks.Done()
	defer close(u.done)
	err := u.copy()
	u.probe.stop()
	if err == io.EOF {
		u.whole = !u.dropped
		u.s.watch()
		return
	}
	u.err = err
	var malformed headError
	if errors.Is(err, errChunk) || errors.Is(err, errHeadTooLarge) || errors.As(err, &malformed) {
		u.s.CloseWith(transport.CloseBadRequest, "the request's body is malformed")
	}
	// A body that was cut off must not look whole to the service.
	u.s.leave()
}

// copy returns io.EOF at the end of the body.
func (u *upload) copy() error {
	buf := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buf)
	chunked := u.body.chunks != nil
	for {
		out, err := fill(buf[:], 0, &u.body, chunked)
		if len(out) > 0 && (err == nil || err == io.EOF) && !u.dropped {
			u.probe.arm()
			_, werr := u.local.Write(out)
			u.probe.disarm()
			// Its answer may still be there to be read.
			u.dropped = werr != nil
		}
		if err != nil {
			return err
		}
	}
}

// ended reports whether the body has been read to its end.
func (u *upload) ended() bool {
	select {
	case <-u.done:
		return true
	default:
		return false
	}
}

// wait waits for the end of the body, and returns what is wrong with it.
func (u *upload) wait() error {
	<-u.done
	return u.err
}

// endsWithin waits for the end of the body, but no longer than d.
func (u *upload) endsWithin(d time.Duration) bool {
	if u.ended() {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-u.done:
		return true
	case <-t.C:
		return false
	}
}
