package agent

import (
	"bytes"
	"context"
	"io"
	"sync"
	"time"

	"github.com/dialback/dialback/transport"
)

// watchAfter is how long an exchange may leave the data socket unread before it
// is read ahead: so the end of a client is noticed, and pings are answered,
// while its service thinks. Most exchanges are over by then.
const watchAfter = 10 * time.Millisecond

// httpStream is a data socket whose HTTP exchanges are forwarded, one at a
// time. It is read by one goroutine at a time: serveOne's between exchanges,
// that of the upload while there is one, and readAhead's while neither wants
// anything.
type httpStream struct {
	byteStream

	// Immutable after newHTTPStream.
	svc *forwardService

	// Owned by the reader of the data socket.
	in source

	// Owned by serveOne.
	request, answer head
	timer           *time.Timer // runs readAhead; nil before the first exchange

	// Guarded by mu. Never held across I/O.
	mu     sync.Mutex
	unread bool               // nobody reads: readAhead may
	ahead  *aheadRead         // begun by readAhead; taken by the next reader, when unread is false
	gone   bool               // the stream has ended
	local  *localConn         // of the exchange; cut when the stream ends
	cancel context.CancelFunc // of a dial under way, the same
}

// aheadRead is a message that is waited for while nobody wants it yet.
type aheadRead struct {
	done chan struct{} // closed when the rest is set
	t    transport.MessageType
	r    io.Reader
	err  error
}

func newHTTPStream(socket *dataSocket, svc *forwardService) *httpStream {
	s := &httpStream{byteStream: byteStream{dataSocket: socket}, svc: svc}
	s.in = newSource(s)
	return s
}

// Read is that of byteStream. It takes the message that was read ahead first.
func (s *httpStream) Read(p []byte) (int, error) {
	if a := s.ahead; a != nil {
		<-a.done
		s.ahead = nil
		switch {
		case a.err != nil:
			return 0, endOf(a.err)
		case a.t == transport.Text:
			return 0, s.text(a.r)
		}
		s.message = a.r
	}
	return s.byteStream.Read(p)
}

// watch has the data socket read ahead, from watchAfter on.
func (s *httpStream) watch() {
	s.mu.Lock()
	s.unread = true
	s.mu.Unlock()
	if s.timer == nil {
		s.timer = time.AfterFunc(watchAfter, s.readAhead)
	} else {
		s.timer.Reset(watchAfter)
	}
}

// unwatch gives the reading side back to the caller. A read that is on is taken
// over by the next Read.
func (s *httpStream) unwatch() {
	s.timer.Stop()
	s.mu.Lock()
	s.unread = false
	s.mu.Unlock()
}

// readAhead is called by timer. It waits for the next message, or for the end
// of the stream, which ends the exchange.
func (s *httpStream) readAhead() {
	s.mu.Lock()
	if !s.unread || s.ahead != nil {
		s.mu.Unlock()
		return
	}
	a := &aheadRead{done: make(chan struct{})}
	s.ahead = a
	s.svc.tasks.Add(1) // serve has not returned
	s.mu.Unlock()
	defer s.svc.tasks.Done()
	defer close(a.done)
	for {
		if s.message != nil { // it may have been read to its end already
			var one [1]byte
			if n, _ := s.message.Read(one[:]); n > 0 {
				a.t, a.r = transport.Binary, io.MultiReader(bytes.NewReader(one[:]), s.message)
				return
			}
		}
		a.t, a.r, a.err = s.conn.Reader()
		if a.err != nil {
			s.leave()
		}
		if a.err != nil || a.t == transport.Text {
			return
		}
		s.message = a.r
	}
}

// forget gives back what a large exchange has taken, before the next one is
// waited for.
func (s *httpStream) forget() {
	s.in.shrink()
	s.request.reset()
	s.answer.reset()
}

// leave says that the stream has ended: the service's request is canceled.
func (s *httpStream) leave() {
	s.mu.Lock()
	s.gone = true
	local, cancel := s.local, s.cancel
	s.mu.Unlock()
	if local != nil {
		local.close()
	}
	if cancel != nil {
		cancel()
	}
}

// left reports whether the stream has ended.
func (s *httpStream) left() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

// hold makes local the connection of the exchange, or none if it is nil, and
// reports whether the stream has not ended. From a true answer on to the next
// call, its end cuts the connection.
func (s *httpStream) hold(local *localConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.local = local
	return !s.gone
}

// dialing makes cancel what cancels the dial under way, and reports whether the
// stream has not ended.
func (s *httpStream) dialing(cancel context.CancelFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel = cancel
	return !s.gone
}

// breakOff ends the stream in the middle of an answer.
func (s *httpStream) breakOff() { s.CloseWith(transport.CloseInternal, "answer broken off") }
