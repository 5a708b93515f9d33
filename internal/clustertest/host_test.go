//go:build linux

package clustertest

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/internal/proctest"
	"github.com/dialback/dialback/transport"
)

// host is a host with a real agent, in the test's process.
type host struct {
	// Immutable after startHost.
	id    string
	agent *agent.Agent

	// Guarded by mu.
	mu      sync.Mutex
	node    string // where it was confirmed last
	online  int    // how often it was
	offline int    // how often it lost its last socket
}

// startHost starts a host at a relay, with further services. It ends with the
// test. It does not wait for the host to be online.
func startHost(t *testing.T, relay, id string, more map[string]agent.Handler) *host {
	t.Helper()
	return startHostWith(t, agent.Config{RelayURL: relay, HostID: id}, more)
}

func startHostWith(t *testing.T, cfg agent.Config, more map[string]agent.Handler) *host {
	t.Helper()
	h := &host{id: cfg.HostID}
	cfg.Services = map[string]agent.Handler{"": agent.HTTP(service(h.id)), "echo": agent.Raw(echo)}
	for name, handler := range more {
		cfg.Services[name] = handler
	}
	cfg.Hooks.Online, cfg.Hooks.Offline = h.isOnline, h.isOffline
	var err error
	if h.agent, err = agent.New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = h.agent.Run(ctx) // its error is ctx's
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return h
}

func (h *host) isOnline(o agent.Online) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.node = o.Node
	h.online++
}

func (h *host) isOffline(error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.offline++
}

// at is the node where the host was confirmed last.
func (h *host) at() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.node
}

// counts returns how often the host came online, and how often it lost its last
// socket.
func (h *host) counts() (online, offline int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.online, h.offline
}

// awaitOnline waits until each host is online, at whatever node.
func awaitOnline(t *testing.T, hosts ...*host) {
	t.Helper()
	for _, h := range hosts {
		proctest.Within(t, proctest.Patience, h.id+" is online", func() bool { return h.agent.Stats().Online && h.at() != "" })
	}
}

// on returns the hosts that were confirmed last at that node.
func on(id string, hosts []*host) []*host {
	var there []*host
	for _, h := range hosts {
		if h.at() == id {
			there = append(there, h)
		}
	}
	return there
}

// echo is a raw service that sends back what it gets.
func echo(_ context.Context, s *agent.Stream) {
	defer s.Close()
	_, _ = io.Copy(s, s)
}

// service is what HTTP clients of a host reach: / is the host's name and the
// path as it came, /echo the body, and a WebSocket gets back its messages.
func service(id string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Upgrade") != "":
			echoMessages(w, r)
		case r.Method == http.MethodPost:
			_, _ = io.Copy(w, r.Body)
		default:
			_, _ = io.WriteString(w, id+" "+r.RequestURI)
		}
	})
}

func echoMessages(w http.ResponseWriter, r *http.Request) {
	conn, err := transport.Accept(w, r, nil)
	if err != nil {
		return
	}
	for {
		t, m, err := conn.Reader()
		var p []byte
		if err == nil {
			p, err = io.ReadAll(m)
		}
		if err != nil || conn.Write(t, p) != nil {
			conn.CloseNow()
			return
		}
	}
}

// onlyTo is a transport that connects to the first node, and to the second once
// the first does not answer.
func onlyTo(first, second *node) *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		n := first
		if !answers(ctx, first) {
			n = second
		}
		return (&net.Dialer{}).DialContext(ctx, network, n.Addr)
	}}
}

// answers reports whether a node answers at once.
func answers(ctx context.Context, n *node) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.URL+"/health", nil)
	if err != nil {
		return false
	}
	resp, err := proctest.Client.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return true
}
