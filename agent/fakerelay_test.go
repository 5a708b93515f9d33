package agent_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/internal/memnet"
	"github.com/dialback/dialback/transport"
)

// fakeRelay is a relay that does what the test says, on an in-memory network.
// It belongs to one bubble.
type fakeRelay struct {
	t        *testing.T
	net      memnet.Network
	controls chan *fakeControl // each control socket, as it is accepted
	dialed   chan *fakeStream  // each data socket, as it is accepted

	// pongs answers pings of sockets that had their hello; else nobody does.
	pongs bool

	// subprotocol is the one that the relay knows; an older relay knows none.
	subprotocol string

	mu     sync.Mutex
	client []*memnet.Conn // the agent's ends, in order
	open   []transport.Conn
	refuse func(w http.ResponseWriter, r *http.Request) bool
}

const relayURL = "ws://relay:80/some/prefix"

func newFakeRelay(t *testing.T) *fakeRelay {
	r := &fakeRelay{t: t, controls: make(chan *fakeControl, 100), dialed: make(chan *fakeStream, 200)}
	r.net.OnDial = func(client, server *memnet.Conn) {
		if server.LocalAddr().String() == "relay:80" {
			r.mu.Lock()
			r.client = append(r.client, client)
			r.mu.Unlock()
		}
	}
	ln, err := r.net.Listen("relay:80")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: r}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(ln) })
	t.Cleanup(func() {
		_ = srv.Close()
		wg.Wait()
		r.mu.Lock()
		open := r.open
		r.mu.Unlock()
		for _, c := range open {
			c.CloseNow()
			<-c.Done()
		}
	})
	return r
}

// refuseWith lets f answer handshakes instead of the relay, if it wants to.
func (r *fakeRelay) refuseWith(f func(w http.ResponseWriter, r *http.Request) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = f
}

func (r *fakeRelay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	refuse := r.refuse
	r.mu.Unlock()
	if refuse != nil && refuse(w, req) {
		return
	}
	switch req.URL.Path {
	case "/some/prefix/v2/control":
		conn := r.accept(w, req)
		c := &fakeControl{relay: r, Conn: conn, query: req.URL.Query(), header: req.Header, frames: make(chan transport.Frame, 3000), done: make(chan struct{}), at: time.Now()}
		go c.read()
		r.controls <- c
	case "/some/prefix/v2/dial":
		conn := r.accept(w, req)
		r.dialed <- &fakeStream{relay: r, Conn: conn, query: req.URL.Query()}
	default:
		http.NotFound(w, req)
	}
}

func (r *fakeRelay) accept(w http.ResponseWriter, req *http.Request) transport.Conn {
	conn, err := transport.Accept(w, req, &transport.AcceptOptions{Options: transport.Options{ReadLimit: -1}, Subprotocol: r.subprotocol})
	if err != nil {
		r.t.Errorf("accept: %v", err)
		panic(http.ErrAbortHandler)
	}
	r.mu.Lock()
	r.open = append(r.open, conn)
	r.mu.Unlock()
	return conn
}

// freeze makes the newest connection a blackhole in which bytes of the agent
// wait already, so many that further writes block.
func (r *fakeRelay) freeze() {
	r.mu.Lock()
	end := r.client[len(r.client)-1]
	r.mu.Unlock()
	end.Freeze()
	_ = end.SetWriteDeadline(time.Now().Add(time.Nanosecond))
	_, _ = end.Write(make([]byte, 1<<20))
	_ = end.SetWriteDeadline(time.Time{})
}

// transport dials over the network of the relay.
func (r *fakeRelay) transport() *http.Transport {
	return &http.Transport{DialContext: r.net.DialContext}
}

// config is a Config for this relay with an echo as its default service, and
// without jitter.
func (r *fakeRelay) config() agent.Config {
	return agent.Config{
		RelayURL:  relayURL,
		HostID:    "host-1",
		Transport: r.transport(),
		Rand:      func() float64 { return 1 },
		Services:  map[string]agent.Handler{"": agent.Raw(echo)},
	}
}

// local is the service at local:80: accept is called for each connection, one
// after the other.
func (r *fakeRelay) local(accept func(net.Conn)) {
	r.t.Helper()
	ln, err := r.net.Listen("local:80")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			accept(conn)
		}
	}()
}

func echo(_ context.Context, s *agent.Stream) {
	_, _ = io.Copy(s, s)
	_ = s.CloseWrite()
}

// next is the next control socket, after its hello.
func (r *fakeRelay) next(generation uint64) *fakeControl {
	r.t.Helper()
	c := r.bare()
	c.hello(generation)
	return c
}

// bare is the next control socket, to which nothing has been said.
func (r *fakeRelay) bare() *fakeControl {
	r.t.Helper()
	return receive(r.t, r.controls, "a control socket")
}

// stream is the next data socket, whose first frame was stream:opened.
func (r *fakeRelay) stream() *fakeStream {
	r.t.Helper()
	s := receive(r.t, r.dialed, "a dial-back")
	typ, m, err := s.Reader()
	if err != nil {
		r.t.Fatalf("first frame of the data socket: %v", err)
	}
	p, _ := io.ReadAll(m)
	if f, err := transport.Decode(p); typ != transport.Text || err != nil || f != (transport.Opened{}) {
		r.t.Fatalf("first frame of the data socket is %q, want stream:opened", p)
	}
	return s
}

// receive waits for a value. In a bubble the clock passes an hour at once when
// nothing happens.
func receive[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	timeout := time.NewTimer(time.Hour)
	defer timeout.Stop()
	select {
	case v, ok := <-c:
		if !ok {
			t.Fatalf("the end, want %s", what)
		}
		return v
	case <-timeout.C:
		t.Fatalf("an hour without %s", what)
		panic("unreachable")
	}
}

// fakeControl is the relay's end of a control socket.
type fakeControl struct {
	transport.Conn
	relay      *fakeRelay
	query      url.Values
	header     http.Header
	generation uint64               // of its hello
	current    atomic.Bool          // had its hello
	at         time.Time            // when it was accepted
	frames     chan transport.Frame // what the agent sends
	done       chan struct{}        // closed when the socket has ended, with err
	err        error
}

func (c *fakeControl) read() {
	defer close(c.done)
	for {
		_, m, err := c.Reader()
		if err != nil {
			c.err = err
			return
		}
		p, err := io.ReadAll(m)
		if err != nil {
			continue
		}
		f, err := transport.Decode(p)
		if err != nil {
			c.relay.t.Errorf("the agent sent %q", p)
			continue
		}
		if _, ping := f.(transport.Ping); ping && c.relay.pongs && c.current.Load() {
			_ = c.Write(transport.Text, transport.Encode(transport.Pong{}))
			continue
		}
		c.frames <- f
	}
}

// hello makes the socket the host's current one.
func (c *fakeControl) hello(generation uint64) {
	c.relay.t.Helper()
	c.generation = generation
	c.send(transport.Hello{Node: "n", Generation: generation})
	c.current.Store(true)
}

func (c *fakeControl) send(f transport.Frame) {
	c.relay.t.Helper()
	c.text(string(transport.Encode(f)))
}

func (c *fakeControl) text(s string) {
	c.relay.t.Helper()
	if err := c.Write(transport.Text, []byte(s)); err != nil {
		c.relay.t.Errorf("write to the control socket: %v", err)
	}
}

// dial sends a stream:dial of this socket's generation and expects its ack.
func (c *fakeControl) dial(d transport.StreamDial) {
	c.relay.t.Helper()
	d.Generation = c.generation
	c.send(withDefaults(d))
	c.want(transport.Ack{Ticket: d.Ticket})
}

func withDefaults(d transport.StreamDial) transport.StreamDial {
	if d.Kind == "" {
		d.Kind = transport.KindTCP
	}
	if d.Proto == "" {
		d.Proto = transport.ProtoRaw
	}
	if d.Stream == "" {
		d.Stream = "s-" + d.Ticket
	}
	return d
}

// want waits for the next frame that is no ping.
func (c *fakeControl) want(want transport.Frame) {
	c.relay.t.Helper()
	for {
		got := receive(c.relay.t, c.frames, "a frame")
		if _, ping := got.(transport.Ping); ping {
			continue
		}
		if got != want {
			c.relay.t.Fatalf("the agent sent %#v, want %#v", got, want)
		}
		return
	}
}

// ended waits for the end of the socket and returns how it ended.
func (c *fakeControl) ended() *transport.CloseError {
	c.relay.t.Helper()
	<-c.done
	var ce *transport.CloseError
	if !errors.As(c.err, &ce) {
		c.relay.t.Fatalf("control socket ended with %v", c.err)
	}
	return ce
}

// isOpen reports whether the socket has not ended.
func (c *fakeControl) isOpen() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// fakeStream is the relay's end of a data socket.
type fakeStream struct {
	transport.Conn
	relay *fakeRelay
	query url.Values
}

func (s *fakeStream) write(p string) {
	s.relay.t.Helper()
	if err := s.Write(transport.Binary, []byte(p)); err != nil {
		s.relay.t.Errorf("write to the data socket: %v", err)
	}
}

func (s *fakeStream) eof() {
	s.relay.t.Helper()
	if err := s.Write(transport.Text, transport.Encode(transport.EOF{})); err != nil {
		s.relay.t.Errorf("half close of the data socket: %v", err)
	}
}

// message is the next one; half closes are "EOF".
func (s *fakeStream) message() (string, error) {
	t, m, err := s.Reader()
	if err != nil {
		return "", err
	}
	p, err := io.ReadAll(m)
	if t == transport.Text {
		if f, err := transport.Decode(p); err == nil && f == (transport.EOF{}) {
			return "EOF", nil
		}
	}
	return string(p), err
}

// wantMessage reads one message.
func (s *fakeStream) wantMessage(want string) {
	s.relay.t.Helper()
	if got, err := s.message(); got != want || err != nil {
		s.relay.t.Errorf("the stream brought %q, %v; want %q", got, err, want)
	}
}

// wantEnd reads on to the end of the stream.
func (s *fakeStream) wantEnd(code transport.CloseCode, reason string) {
	s.relay.t.Helper()
	for {
		m, err := s.message()
		if err == nil {
			s.relay.t.Errorf("the stream brought %q, want its end", m)
			continue
		}
		var ce *transport.CloseError
		if !errors.As(err, &ce) || ce.Code != code || ce.Reason != reason || !ce.Remote {
			s.relay.t.Errorf("the stream ended with %v, want %d %q", err, code, reason)
		}
		return
	}
}

// running is an agent in Run.
type running struct {
	*agent.Agent
	stop func() error // ends Run and returns its error
}

func run(t *testing.T, cfg agent.Config) *running {
	t.Helper()
	a, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	stop := sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { _ = stop() })
	return &running{Agent: a, stop: stop}
}

// serve runs an HTTP server on the network.
func (r *fakeRelay) serve(addr string, srv *http.Server) {
	ln, err := r.net.Listen(addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.serveOn(ln, srv)
}

func (r *fakeRelay) serveOn(ln net.Listener, srv *http.Server) {
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(ln) })
	r.t.Cleanup(func() {
		_ = srv.Close()
		wg.Wait()
	})
}
