package relay

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dialback/dialback/transport"
	"github.com/google/uuid"
	"golang.org/x/time/rate"
)

// Server relays: it is an http.Handler that takes hosts' control sockets and
// dial-backs and serves clients, and it offers the same to the embedding
// program with Dial and RoundTripper. It owns no listener, no signal handler
// and no global. All methods may be called concurrently.
//
// A Server must be ended with Shutdown or Close, which http.Server's own
// Shutdown does not do: it does not know hijacked connections.
type Server struct {
	// Immutable after New.
	cfg         Config
	log         *slog.Logger
	nodeID      string
	incarnation string
	ctx         context.Context // ends with Close
	cancel      context.CancelCauseFunc
	limiter     *rate.Limiter // nil: no AcceptRate
	nodeClient  *http.Client
	shared      bool // other nodes have the same key, and can be called

	registry registry
	tickets  tickets
	pinger   pinger
	recorder recorder
	conns    conns
	outage   outage
	nodes    nodeTable
	stats    counters
	controls atomic.Uint64 // control sockets that were accepted

	// Guarded by mu.
	mu    sync.Mutex
	phase phase
	wg    sync.WaitGroup // spawned goroutines; Add only while mu is held and not closed

	closed chan struct{} // closed when Close has done all
}

var _ http.Handler = (*Server)(nil)

// New makes a Server from cfg. It registers the node in the Store, which may
// fail without harm: the Server goes on trying.
func New(cfg Config) (*Server, error) {
	shared := len(cfg.Node.Key) > 0
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, log: cfg.Logger, nodeID: cfg.Node.ID, incarnation: uuid.NewString(), shared: shared, closed: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.conns.open = make(map[transport.Conn]struct{})
	s.registry.hubs = make(map[string]*hub)
	s.tickets = tickets{nodeID: s.nodeID, key: cfg.Node.Key, pending: make(map[string]*dial)}
	s.pinger.srv, s.recorder.srv, s.outage.srv, s.nodes.srv = s, s, s, s
	s.nodes.born = time.Now()
	s.nodes.startedAt = s.nodes.born
	if cfg.AcceptRate > 0 {
		s.limiter = rate.NewLimiter(rate.Limit(cfg.AcceptRate), max(1, int(cfg.AcceptRate)))
	}
	// Over HTTP/2 all calls would share a connection, which is never idle under
	// load, and so never given up when the network has forgotten it.
	http1 := new(http.Protocols)
	http1.SetHTTP1(true)
	s.nodeClient = &http.Client{
		Transport: &http.Transport{
			Protocols: http1, DialContext: cfg.Node.DialContext, TLSClientConfig: cfg.Node.TLS, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, DisableCompression: true,
			MaxResponseHeaderBytes: int64(cfg.MaxHeader),
		},
		// No node redirects; one that does must not choose whom else this one calls.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	s.nodes.beat()
	s.spawn(s.nodes.run)
	return s, nil
}

// spawn runs f in a goroutine that Close waits for; it reports false, and does
// nothing, once the Server is closed.
func (s *Server) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == phaseClosed {
		return false
	}
	s.wg.Go(f)
	return true
}

// storeContext bounds a call of the Store that no request waits for.
func (s *Server) storeContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), s.cfg.StoreTimeout)
}

// linger remembers for ReconnectGrace that the host of h has just left.
func (s *Server) linger(h *hub) {
	if s.cfg.ReconnectGrace <= 0 {
		return
	}
	s.registry.acquire(h.hostID)
	time.AfterFunc(s.cfg.ReconnectGrace, func() { s.registry.release(h) })
}

// admitHost checks, before the upgrade, whether one more control socket of h's
// host may come, and counts it until dismissHost.
func (s *Server) admitHost(h *hub) error {
	if err := s.accepting(false); err != nil {
		return err
	}
	if s.outage.out() {
		return ErrStoreUnavailable
	}
	if s.limiter != nil && !s.limiter.Allow() {
		return Deny(ErrNodeLimit, "too many control sockets at once")
	}
	for n := s.stats.hosts.Load(); s.cfg.MaxHosts == 0 || n < int64(s.cfg.MaxHosts); n = s.stats.hosts.Load() {
		if s.stats.hosts.CompareAndSwap(n, n+1) {
			return nil
		}
	}
	if !h.addGuest() {
		return ErrNodeLimit
	}
	return nil
}

// dismissHost is called when a control socket of h's host has ended, or did not
// come after all.
func (s *Server) dismissHost(h *hub) {
	if !h.endGuest() {
		s.stats.hosts.Add(-1)
	}
}
