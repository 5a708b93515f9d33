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
// anything, and from a half close on.
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
	ahead  *aheadRead         // begun by readAhead; taken by the next reader, when unread is false, unless it has an error
	gone   bool               // the stream has ended
	local  *localConn         // of the exchange; cut when the stream ends
	cancel context.CancelFunc // of a dial under way, the same
}

// aheadRead is a message that is waited for while nobody wants it yet.
type aheadRead struct {
	done chan struct{} // closed when the next three are set
	r    io.Reader     // of bytes
	err  error         // there are no more; io.EOF when the client has half-closed
	over chan struct{} // behind a half close: closed when end is set

	end error // how the stream ended
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
		if a.err != nil {
			return 0, endOf(a.err) // and again, if it is asked for
		}
		s.ahead = nil
		s.message = a.r
	}
	return s.byteStream.Read(p)
}

// awaitEnd is that of byteStream, unless readAhead does the same already.
func (s *httpStream) awaitEnd() error {
	if a := s.ahead; a != nil {
		<-a.over
		return a.end
	}
	return s.byteStream.awaitEnd()
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

// readAhead is called by timer. It waits for the next bytes, or for the end of
// the stream, which ends the exchange. Behind a half close it waits for that
// end: only a reader learns of it, and answers pings.
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
	if a.r, a.err = s.nextMessage(); a.err == io.EOF {
		a.over = make(chan struct{})
		close(a.done)
		defer close(a.over)
		a.end = s.byteStream.awaitEnd()
	} else {
		defer close(a.done)
	}
	if a.err != nil {
		s.leave()
	}
}

// nextMessage waits for bytes. io.EOF is a half close.
func (s *httpStream) nextMessage() (io.Reader, error) {
	for {
		if s.message != nil { // it may have been read to its end already
			var one [1]byte
			if n, _ := s.message.Read(one[:]); n > 0 {
				return io.MultiReader(bytes.NewReader(one[:]), s.message), nil
			}
		}
		t, r, err := s.conn.Reader()
		if err == nil && t == transport.Text {
			err = s.text(r)
		}
		if err != nil {
			return nil, err
		}
		s.message = r
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
