package agent

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"sync"

	"github.com/dialback/dialback/transport"
)

// backlogSize bounds the streams that wait for Accept.
const backlogSize = 128

// Listener is a net.Listener of the streams of one service.
type Listener struct {
	// Immutable after Listen.
	agent   *Agent
	addr    Addr
	streams *acceptQueue
	cancel  context.CancelFunc
	done    chan struct{} // closed when Run has returned
}

var _ net.Listener = (*Listener)(nil)

// Listen starts an agent whose service Config.ListenService goes to the
// returned listener; the other Config.Services are served as in New. It does
// not wait for the relay: Hooks.Online tells when streams can come.
//
// The end of ctx is like Close. The error names the field of cfg that is
// wrong.
func Listen(ctx context.Context, cfg Config) (*Listener, error) {
	name := cfg.ListenService
	if cfg.Services[name] != nil {
		return nil, fmt.Errorf("agent: Config.Services[%q]: is ListenService", name)
	}
	queue := newAcceptQueue(backlogSize)
	services := make(map[string]Handler, len(cfg.Services)+1)
	maps.Copy(services, cfg.Services)
	services[name] = listenHandler{queue}
	cfg.Services = services
	a, err := New(cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	l := &Listener{
		agent:   a,
		addr:    Addr{HostID: cfg.HostID, Service: name},
		streams: queue,
		cancel:  cancel,
		done:    make(chan struct{}),
	}
	go l.run(ctx)
	return l, nil
}

func (l *Listener) run(ctx context.Context) {
	defer close(l.done)
	_ = l.agent.Run(ctx) // the error is that of ctx, which says nothing new
	l.streams.close()
}

// Accept waits for the next stream; it is a *Stream. After the end of the
// listener the error is net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	s, err := l.streams.Accept()
	if err != nil {
		return nil, &net.OpError{Op: "accept", Net: l.addr.Network(), Addr: l.addr, Err: err}
	}
	return s, nil
}

// Close takes the host from the relay, closes all streams of it, and waits for
// that, but no longer than Config.StopTimeout.
func (l *Listener) Close() error {
	l.streams.close()
	l.cancel()
	<-l.done
	return nil
}

// Addr is where clients find the service: an Addr.
func (l *Listener) Addr() net.Addr { return l.addr }

// Agent is the agent behind the listener.
func (l *Listener) Agent() *Agent { return l.agent }

// Addr is the address of a service of a host.
type Addr struct{ HostID, Service string }

// Network is "dialback".
func (a Addr) Network() string { return "dialback" }

// String is the host ID, with a slash and the service if it has a name.
func (a Addr) String() string {
	if a.Service == "" {
		return a.HostID
	}
	return a.HostID + "/" + a.Service
}

// acceptQueue hands streams to whoever calls Accept. It is a net.Listener.
type acceptQueue struct {
	// slots has room for each stream that may wait. A slot is taken before
	// its stream exists, so that a dial can be refused. Nil means that push
	// waits for Accept instead.
	slots chan struct{}
	// c carries streams from push to Accept; never closed.
	c    chan *Stream
	done chan struct{} // closed by close
	once sync.Once
}

func newAcceptQueue(backlog int) *acceptQueue {
	q := &acceptQueue{c: make(chan *Stream, backlog), done: make(chan struct{})}
	if backlog > 0 {
		q.slots = make(chan struct{}, backlog)
	}
	return q
}

// Accept implements net.Listener.
func (q *acceptQueue) Accept() (net.Conn, error) {
	select {
	case <-q.done:
		return nil, net.ErrClosed
	default:
	}
	select {
	case <-q.done:
		return nil, net.ErrClosed
	case s := <-q.c:
		if q.slots != nil {
			<-q.slots
		}
		return s, nil
	}
}

// push hands a stream over, and reports whether it could.
func (q *acceptQueue) push(s *Stream) bool {
	select {
	case <-q.done:
		return false
	case q.c <- s:
		return true
	}
}

func (q *acceptQueue) close() { q.once.Do(func() { close(q.done) }) }

// Close implements net.Listener.
func (q *acceptQueue) Close() error {
	q.close()
	return nil
}

// Addr implements net.Listener.
func (q *acceptQueue) Addr() net.Addr { return Addr{} }

// listenHandler is the service behind a Listener.
type listenHandler struct{ queue *acceptQueue }

func (h listenHandler) check() error      { return nil }
func (h listenHandler) proto() string     { return transport.ProtoRaw }
func (h listenHandler) start(env) service { return h }
func (h listenHandler) stop()             {}

func (h listenHandler) open(context.Context, StreamInfo) (endpoint, error) {
	select {
	case <-h.queue.done:
		return nil, refuse(http.StatusServiceUnavailable, "listener closed")
	case h.queue.slots <- struct{}{}:
		return h, nil
	default:
		return nil, refuse(http.StatusServiceUnavailable, "backlog full")
	}
}

func (h listenHandler) abandon() { <-h.queue.slots }

func (h listenHandler) serve(s *dataSocket) {
	if !h.queue.push(newStream(s)) {
		s.closeWith(transport.CloseGoingAway, "listener closed")
	}
}
