package relaytest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/dialback/dialback/internal/memnet"
	"github.com/dialback/dialback/transport"
	"github.com/google/uuid"
)

// Host is a host that does what its script says, frame by frame: what no
// well-behaved agent can be made to do.
type Host struct {
	ID string

	s    *Server
	t    testing.TB
	cfg  HostConfig
	conn transport.Conn
	raw  *memnet.Conn // beneath conn

	hello  chan transport.Hello
	closed chan *transport.CloseError
	dials  chan transport.StreamDial

	// Guarded by mu.
	mu     sync.Mutex
	frames []transport.Frame // all that the relay sent
}

// HostConfig is a Host's script. The zero value is a v2 host that hears dials
// and does nothing.
type HostConfig struct {
	// Proto is 2 or 3. Zero means 2.
	Proto int
	// Instance and Seq are what an agent of protocol 3 says of itself; an
	// empty Instance means a random one.
	Instance string
	Seq      uint64
	// Token is sent as a credential.
	Token string
	// NoAck keeps a host of protocol 3 from acknowledging dials.
	NoAck bool
	// Spares has dials of spares delivered like other dials. Without it they
	// are refused, as by an agent that knows no spares.
	Spares bool
	// OnDial is called for each dial, in a goroutine of its own. Nil means
	// that dials wait in Dials.
	OnDial func(h *Host, d transport.StreamDial)
}

// Connect attaches a host. It returns when the relay has claimed the socket.
func (s *Server) Connect(hostID string, cfg HostConfig) (*Host, error) {
	if cfg.Proto == 0 {
		cfg.Proto = 2
	}
	if cfg.Instance == "" {
		cfg.Instance = uuid.NewString()
	}
	h := &Host{
		ID: hostID, s: s, t: s.t, cfg: cfg,
		hello: make(chan transport.Hello, 1), closed: make(chan *transport.CloseError, 1), dials: make(chan transport.StreamDial, 4096),
	}
	tr := s.Transport()
	tr.DialContext = s.dialInto(&h.raw)
	before := s.generation(hostID)
	conn, err := transport.Dial(context.Background(), s.URL+control(hostID, cfg.Proto, cfg.Instance, strconv.FormatUint(cfg.Seq, 10)),
		&transport.DialOptions{Header: bearer(cfg.Token), Transport: tr})
	if err != nil {
		return nil, err
	}
	h.conn = conn
	go h.read()
	s.t.Cleanup(h.conn.CloseNow)
	return h, h.awaitClaim(before)
}

// MustConnect is Connect for tests that have nothing to say about failure.
func (s *Server) MustConnect(hostID string, cfg HostConfig) *Host {
	s.t.Helper()
	h, err := s.Connect(hostID, cfg)
	if err != nil {
		s.t.Fatalf("relaytest: connect host %s: %v", hostID, err)
	}
	return h
}

// dialInto is a DialContext on the network that stores the connection in raw.
func (s *Server) dialInto(raw **memnet.Conn) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := s.net.DialContext(ctx, network, addr)
		if err == nil {
			*raw = c.(*memnet.Conn)
		}
		return c, err
	}
}

func (s *Server) generation(hostID string) uint64 {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	a, err := s.Store.Current(ctx, hostID)
	if err != nil {
		return 0
	}
	return a.Generation
}

// awaitClaim waits until the Store names this socket, a minute at most.
func (h *Host) awaitClaim(before uint64) error {
	if h.cfg.Proto >= 3 {
		select {
		case hello := <-h.hello:
			h.hello <- hello
			return nil
		case ce := <-h.closed:
			h.closed <- ce
			return ce
		case <-time.After(time.Minute):
			return fmt.Errorf("relaytest: no hello")
		}
	}
	timeout := time.After(time.Minute)
	for {
		attached := h.s.nextAttach() // before the look: nothing is missed
		if h.s.generation(h.ID) != before {
			return nil
		}
		select {
		case <-attached:
		case ce := <-h.closed:
			h.closed <- ce
			return ce
		case <-timeout:
			return fmt.Errorf("relaytest: host %s was not claimed", h.ID)
		}
	}
}

// read takes the relay's frames until the socket ends.
func (h *Host) read() {
	for {
		t, r, err := h.conn.Reader()
		var p []byte
		if err == nil {
			p, err = io.ReadAll(r)
		}
		if err != nil {
			ce, ok := err.(*transport.CloseError)
			if !ok {
				ce = &transport.CloseError{Code: transport.CloseAbnormal, Err: err}
			}
			h.closed <- ce
			return
		}
		if t != transport.Text {
			continue
		}
		f, err := transport.Decode(p)
		if err != nil {
			continue
		}
		h.mu.Lock()
		h.frames = append(h.frames, f)
		h.mu.Unlock()
		switch f := f.(type) {
		case transport.Hello:
			h.hello <- f
		case transport.StreamDial:
			if f.Kind == transport.KindSpare && !h.cfg.Spares {
				h.Refuse(f, http.StatusBadGateway, `unsupported kind "spare"`)
				continue
			}
			if h.cfg.Proto >= 3 && !h.cfg.NoAck {
				h.Send(transport.Ack{Ticket: f.Ticket})
			}
			if h.cfg.OnDial != nil {
				go h.cfg.OnDial(h, f)
			} else {
				h.dials <- f
			}
		}
	}
}

// Send sends a frame on the control socket.
func (h *Host) Send(f transport.Frame) error {
	return h.conn.Write(transport.Text, transport.Encode(f))
}

// SendRaw sends any message on the control socket.
func (h *Host) SendRaw(t transport.MessageType, p []byte) error { return h.conn.Write(t, p) }

// Dials is where dials wait when there is no OnDial.
func (h *Host) Dials() <-chan transport.StreamDial { return h.dials }

// Frames returns all frames that the relay has sent so far.
func (h *Host) Frames() []transport.Frame {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]transport.Frame(nil), h.frames...)
}

// Count returns how many frames of f's type the relay has sent so far.
func Count[F transport.Frame](h *Host) int {
	n := 0
	for _, f := range h.Frames() {
		if _, ok := f.(F); ok {
			n++
		}
	}
	return n
}

// Closed delivers how the control socket ended.
func (h *Host) Closed() <-chan *transport.CloseError { return h.closed }

// Freeze makes the control connection a blackhole: no byte and no end gets
// through any more, and both ends stay open.
func (h *Host) Freeze() { h.raw.Freeze() }

// Thaw ends Freeze: what has waited arrives.
func (h *Host) Thaw() { h.raw.Thaw() }

// Vanish cuts the control connection as a lost machine does once it is noticed.
func (h *Host) Vanish() { h.raw.Cut() }

// Close closes the control socket cleanly.
func (h *Host) Close() { h.conn.Close(transport.CloseNormal, "") }

// DialBack answers a dial with a data socket.
func (h *Host) DialBack(d transport.StreamDial) (transport.Conn, error) {
	c, _, err := h.dialBack(d)
	return c, err
}

// DialBackFreezable is DialBack; freeze makes the connection a blackhole, and
// thaw ends that: what has waited arrives.
func (h *Host) DialBackFreezable(d transport.StreamDial) (c transport.Conn, freeze, thaw func(), err error) {
	c, raw, err := h.dialBack(d)
	if err != nil {
		return nil, nil, nil, err
	}
	return c, raw.Freeze, raw.Thaw, nil
}

func (h *Host) dialBack(d transport.StreamDial) (transport.Conn, *memnet.Conn, error) {
	q := url.Values{"hostId": {h.ID}, "ticket": {d.Ticket}}
	tr := h.s.Transport()
	var raw *memnet.Conn
	tr.DialContext = h.s.dialInto(&raw)
	c, err := transport.Dial(context.Background(), h.s.URL+"/v2/dial?"+q.Encode(), &transport.DialOptions{Options: transport.Options{ReadLimit: -1}, Transport: tr})
	if err == nil {
		h.t.Cleanup(c.CloseNow)
	}
	return c, raw, err
}

// Open answers a tcp dial with a byte stream that says that it is opened.
func (h *Host) Open(d transport.StreamDial) (*transport.StreamConn, error) {
	sc, _, err := h.OpenFreezable(d)
	return sc, err
}

// OpenFreezable is Open; freeze makes the connection a blackhole, as when the
// host vanishes without a word.
func (h *Host) OpenFreezable(d transport.StreamDial) (sc *transport.StreamConn, freeze func(), err error) {
	c, raw, err := h.dialBack(d)
	if err != nil {
		return nil, nil, err
	}
	if err := c.Write(transport.Text, transport.Encode(transport.Opened{})); err != nil {
		return nil, nil, err
	}
	return transport.NewStreamConn(c), raw.Freeze, nil
}

// Refuse refuses a dial on the control socket.
func (h *Host) Refuse(d transport.StreamDial, status int, reason string) error {
	return h.Send(transport.Refuse{Ticket: d.Ticket, Status: status, Reason: reason})
}

// AnswerHTTP is an OnDial that answers v2 exchanges: handle gets the request
// with its body read, and its answer is sent.
func AnswerHTTP(handle func(req transport.HTTPRequest, body []byte) (status int, answer string)) func(*Host, transport.StreamDial) {
	return func(h *Host, d transport.StreamDial) {
		c, err := h.DialBack(d)
		if err != nil {
			return
		}
		req, body, err := ReadHTTPRequest(c)
		if err != nil {
			return
		}
		status, answer := handle(req, body)
		c.Write(transport.Text, transport.Encode(transport.HTTPResponse{Status: status, Headers: map[string]string{"content-type": "text/plain"}}))
		if answer != "" {
			c.Write(transport.Binary, []byte(answer))
		}
		c.Write(transport.Text, transport.Encode(transport.HTTPEnd{}))
		c.Reader() // the relay closes
	}
}

// AnswerText is an OnDial that answers each v2 exchange with this text.
func AnswerText(text string) func(*Host, transport.StreamDial) {
	return AnswerHTTP(func(transport.HTTPRequest, []byte) (int, string) { return http.StatusOK, text })
}

// ReadHTTPRequest reads the request of a v2 exchange up to its http:end.
func ReadHTTPRequest(c transport.Conn) (req transport.HTTPRequest, body []byte, err error) {
	for {
		t, r, err := c.Reader()
		if err != nil {
			return req, body, err
		}
		p, err := io.ReadAll(r)
		if err != nil {
			return req, body, err
		}
		if t == transport.Binary {
			body = append(body, p...)
			continue
		}
		f, err := transport.Decode(p)
		if err != nil {
			return req, body, err
		}
		switch f := f.(type) {
		case transport.HTTPRequest:
			req = f
		case transport.HTTPEnd:
			return req, body, nil
		}
	}
}
