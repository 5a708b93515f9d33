// Package relaytest helps to unit-test servers that embed a relay, as
// net/http/httptest helps with HTTP: a relay on the memory store and an
// in-memory network, agents on it, and a scripted host that misbehaves on
// demand. Everything works inside a testing/synctest bubble.
package relaytest

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/internal/memnet"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/memory"
	"github.com/dialback/dialback/store/storetest"
	"github.com/dialback/dialback/transport"
)

// address is where a single relay listens on its in-memory network.
const address = "relay.test:80"

// Server is a relay that serves its own in-memory network. It ends with the
// test.
type Server struct {
	Relay *relay.Server
	Store store.Store
	// URL is the relay's, for agents and requests on the network.
	URL string

	t    testing.TB
	addr string
	net  *memnet.Network
	http *http.Server
	open *conns
	gate *storetest.Faulty // before the relay's Store

	mu       sync.Mutex
	dead     chan struct{} // closed by Close
	attached chan struct{} // closed, and replaced, when a host attaches
	conns    []*memnet.Conn
	frozen   bool
	killed   bool
}

// Options change what NewServer makes; nil means none of it.
type Options struct {
	// Config changes the relay's configuration before it is made. The Store
	// is memory.New and everybody is authorized unless it says otherwise.
	Config func(*relay.Config)
	// Wrap puts the embedder's own handler around the relay: middleware, a
	// mux, a path prefix.
	Wrap func(http.Handler) http.Handler
	// HTTP changes the http.Server before it serves.
	HTTP func(*http.Server)
	// Prefix is appended to URL, for relays that Wrap mounts below a path.
	Prefix string
}

// NewServer starts a relay. It is closed by t.Cleanup, or by Close, which a
// test in a bubble calls itself.
func NewServer(t testing.TB, o *Options) *Server {
	t.Helper()
	cfg := relay.Config{Store: memory.New(), AuthorizeHost: relay.AllowAll, AuthorizeClient: relay.AllowAll}
	return newServer(t, &memnet.Network{}, address, cfg, o)
}

func newServer(t testing.TB, network *memnet.Network, addr string, cfg relay.Config, o *Options) *Server {
	t.Helper()
	if o == nil {
		o = &Options{}
	}
	if o.Config != nil {
		o.Config(&cfg)
	}
	s := &Server{Store: cfg.Store, URL: "http://" + addr + o.Prefix, t: t, addr: addr, net: network, dead: make(chan struct{}), attached: make(chan struct{})}
	s.gate = storetest.NewFaulty(cfg.Store)
	cfg.Store = s.gate
	cfg.Node.DialContext = s.dialFrom(cfg.Node.DialContext)
	told := cfg.Hooks.HostAttached
	cfg.Hooks.HostAttached = func(a store.Attachment) {
		if told != nil {
			told(a)
		}
		s.hostAttached()
	}
	srv, err := relay.New(cfg)
	if err != nil {
		t.Fatalf("relaytest: %v", err)
	}
	s.Relay = srv
	var h http.Handler = srv
	if o.Wrap != nil {
		h = o.Wrap(h)
	}
	ln, err := s.net.Listen(addr)
	if err != nil {
		t.Fatalf("relaytest: %v", err)
	}
	s.open = newConns()
	s.http = &http.Server{Handler: h, ConnState: s.open.connState}
	if o.HTTP != nil {
		o.HTTP(s.http)
	}
	go s.http.Serve(&listener{ln, s})
	t.Cleanup(s.Close)
	return s
}

func (s *Server) hostAttached() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.attached)
	s.attached = make(chan struct{})
}

// nextAttach returns a channel that is closed when the next host attaches.
func (s *Server) nextAttach() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attached
}

// Close ends the relay and its network; calls after the first do nothing.
func (s *Server) Close() {
	s.mu.Lock()
	select {
	case <-s.dead:
		s.mu.Unlock()
		return
	default:
	}
	close(s.dead)
	s.mu.Unlock()
	s.Relay.Close()
	s.http.Close()
	s.open.wait(5 * time.Second)
}

// Transport returns a new transport on the in-memory network, for an
// agent.Config or an http.Client. Its idle connections are the caller's.
func (s *Server) Transport() *http.Transport {
	return &http.Transport{DialContext: s.net.DialContext, DisableCompression: true}
}

// FarTransport is Transport for somebody who is far away: what is sent takes
// oneWay to arrive, in either direction, and a connection a round trip to open.
func (s *Server) FarTransport(oneWay time.Duration) *http.Transport {
	tr := s.Transport()
	tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		trip := time.NewTimer(2 * oneWay)
		defer trip.Stop()
		select {
		case <-trip.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		c, err := s.net.DialContext(ctx, network, addr)
		if err == nil {
			c.(*memnet.Conn).SetLatency(oneWay)
		}
		return c, err
	}
	return tr
}

// Do sends a request to the relay on a connection of its own and returns the
// answer with its body read.
func (s *Server) Do(method, path string, body io.Reader) (*http.Response, string, error) {
	req, err := http.NewRequest(method, s.URL+path, body)
	if err != nil {
		return nil, "", err
	}
	return s.DoRequest(req)
}

// DoRequest is Do for a request that the caller made.
func (s *Server) DoRequest(req *http.Request) (*http.Response, string, error) {
	tr := s.Transport()
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp, string(b), err
}

// DialWS opens a WebSocket to the relay.
func (s *Server) DialWS(ctx context.Context, path string, o *transport.DialOptions) (transport.Conn, error) {
	var opts transport.DialOptions
	if o != nil {
		opts = *o
	}
	opts.Transport = s.Transport()
	if opts.ReadLimit == 0 {
		opts.ReadLimit = -1
	}
	return transport.Dial(ctx, s.URL+path, &opts)
}

// StartAgent runs an agent with these services and waits until it is online.
// cfg may be nil; its RelayURL, HostID, Services and Transport are set. stop
// ends the agent and waits for it.
func (s *Server) StartAgent(hostID string, services map[string]agent.Handler, cfg *agent.Config) (stop func()) {
	s.t.Helper()
	return s.StartAgentOn(s.Transport(), hostID, services, cfg)
}

// StartAgentOn is StartAgent with a transport of the caller's, which may lead
// elsewhere.
func (s *Server) StartAgentOn(tr *http.Transport, hostID string, services map[string]agent.Handler, cfg *agent.Config) (stop func()) {
	s.t.Helper()
	var c agent.Config
	if cfg != nil {
		c = *cfg
	}
	c.RelayURL, c.HostID, c.Services, c.Transport = s.URL, hostID, services, tr
	online := make(chan struct{})
	var once sync.Once
	told := c.Hooks.Online
	c.Hooks.Online = func(o agent.Online) {
		once.Do(func() { close(online) })
		if told != nil {
			told(o)
		}
	}
	a, err := agent.New(c)
	if err != nil {
		s.t.Fatalf("relaytest: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); a.Run(ctx) }()
	stop = func() {
		cancel()
		<-done
		tr.CloseIdleConnections()
	}
	s.t.Cleanup(stop)
	select {
	case <-online:
	case <-time.After(time.Minute):
		s.t.Fatalf("relaytest: agent of %s is not online", hostID)
	}
	return stop
}

// control is the path of a control socket.
func control(hostID string, proto int, instance, seq string) string {
	q := url.Values{"hostId": {hostID}}
	if proto >= 3 {
		q.Set("proto", "3")
		q.Set("instance", instance)
		q.Set("seq", seq)
	}
	return "/v2/control?" + q.Encode()
}

// bearer is the header that carries a token; empty means none.
func bearer(token string) http.Header {
	h := http.Header{}
	if strings.TrimSpace(token) != "" {
		h.Set("Dialback-Authorization", "Bearer "+token)
	}
	return h
}
