package agent

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
)

// Agent keeps one host connected to a relay and serves its streams.
type Agent struct {
	// Immutable after New.
	cfg      Config
	url      relayURL
	instance string // tells the relay this agent from another with its host ID

	stats counters

	// Guarded by mu.
	mu      sync.Mutex
	running bool

	// Owned by Run.
	tokens *tokenSource // nil without a Token func
	seq    uint64       // connection attempts so far; grows across Runs
}

// counters are written by anybody.
type counters struct {
	online        atomic.Int64 // confirmed control sockets
	streams       atomic.Int64 // open now
	opened        atomic.Uint64
	refused       atomic.Uint64
	dialsFailed   atomic.Uint64
	connects      atomic.Uint64
	hooksDropped  atomic.Uint64
	framesIgnored atomic.Uint64
}

// Stats are an agent's counts. All but Online and Streams are totals since New.
type Stats struct {
	Online        bool   // a confirmed control socket is open
	Streams       int    // open streams
	StreamsOpened uint64 // streams
	Refused       uint64 // dials that were refused
	DialsFailed   uint64 // dial-backs that did not succeed
	Connects      uint64 // attempts to open a control socket
	HooksDropped  uint64 // calls of hooks that were dropped
	FramesIgnored uint64 // control frames that were not understood
}

// New checks cfg and returns an agent that is not yet running. The error names
// the field that is wrong.
func New(cfg Config) (*Agent, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	u, err := parseRelayURL(cfg.RelayURL, cfg.HostID)
	if err != nil {
		return nil, err
	}
	a := &Agent{cfg: cfg, url: u, instance: uuid.NewString()}
	if cfg.Token != nil {
		a.tokens = &tokenSource{mint: cfg.Token, timeout: cfg.TokenTimeout}
	}
	return a, nil
}

// Run keeps the host connected until ctx ends, whatever fails meanwhile, and
// then returns ctx.Err(). The end of ctx closes the control socket and all
// streams with 1001; Run waits for them, but no longer than StopTimeout for
// handlers and hooks that do not return. A second Run at the same time is
// ErrRunning; a later one is fine.
func (a *Agent) Run(ctx context.Context) error {
	a.mu.Lock()
	running := a.running
	a.running = true
	a.mu.Unlock()
	if running {
		return ErrRunning
	}
	r := newRunner(ctx, a)
	r.run()
	r.stop()
	a.mu.Lock()
	a.running = false
	a.mu.Unlock()
	return ctx.Err()
}

// Stats returns the agent's counts as they are now.
func (a *Agent) Stats() Stats {
	return Stats{
		Online:        a.stats.online.Load() > 0,
		Streams:       int(a.stats.streams.Load()),
		StreamsOpened: a.stats.opened.Load(),
		Refused:       a.stats.refused.Load(),
		DialsFailed:   a.stats.dialsFailed.Load(),
		Connects:      a.stats.connects.Load(),
		HooksDropped:  a.stats.hooksDropped.Load(),
		FramesIgnored: a.stats.framesIgnored.Load(),
	}
}
