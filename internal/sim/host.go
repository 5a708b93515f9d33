package sim

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/internal/memnet"
)

// hostKind is what a host runs.
type hostKind uint8

const (
	agentInProcess hostKind = iota // an agent whose service is a handler
	agentForward                   // an agent that forwards to a server beside it
	hostV2                         // a host of version 2
	agentOfOld                     // an agent whose relay is of a version that knows no ping
)

// hostProc is one process of a host.
type hostProc struct {
	*process
	kind   hostKind
	cancel context.CancelFunc
	done   chan struct{}
	leads  atomic.Int64 // connections so far: the load balancer leads each somewhere
}

// startHost starts a process of a host.
func (w *World) startHost(name string) *hostProc {
	p := newProcess(w, name, w.label(name))
	ctx, cancel := context.WithCancel(context.Background())
	h := &hostProc{process: p, kind: w.schedule.hostKind(name), cancel: cancel, done: make(chan struct{})}
	w.mu.Lock()
	w.hosts[name] = append(w.hosts[name], h)
	w.mu.Unlock()
	w.tr.log("%s starts", p.label)
	dial := w.network.dialer(p, func() string { return w.lead(h) })
	if h.kind == hostV2 {
		v2 := &v2Host{w: w, p: p, transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}, rand: newRandom(w.schedule.Seed, p.label)}
		w.tasks.Go(func() { defer close(h.done); v2.run(ctx) })
		return h
	}
	w.tasks.Go(func() { defer close(h.done); h.runAgent(ctx, dial) })
	return h
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// runAgent runs an agent until ctx ends.
func (h *hostProc) runAgent(ctx context.Context, dial dialFunc) {
	svc := &service{h.w, h.process}
	web := agent.HTTP(svc)
	if h.kind == agentForward {
		local := &memnet.Network{}
		ln, err := local.Listen("web:80")
		if err != nil {
			h.w.tr.violated("sim", "listen: %v", err)
			return
		}
		// Shorter than the agent would keep a connection: report C.
		server := &http.Server{Handler: svc, IdleTimeout: time.Second, ErrorLog: h.w.quiet}
		go server.Serve(ln)
		defer server.Close()
		web = agent.ForwardHTTPWith("http://web", agent.HTTPOptions{DialContext: local.DialContext})
	}
	a, err := agent.New(agent.Config{
		RelayURL: "http://lb", HostID: h.name, Transport: &http.Transport{DialContext: dial},
		Services: map[string]agent.Handler{"": web, "raw": agent.Raw(svc.serveRaw)},
		Rand:     newRandom(h.w.schedule.Seed, h.label).Float64,
		Hooks:    agent.Hooks{Retry: h.retried},
		Logger:   slog.New(slog.DiscardHandler),
	})
	if err != nil {
		h.w.tr.violated("sim", "agent.New: %v", err)
		return
	}
	a.Run(ctx)
}

// retried checks the rule of pongSeen: an agent leaves a control socket for its
// silence only if the relay has answered on it before. Only the relay of
// earlier version never does, and nothing else is wrong with its socket.
func (h *hostProc) retried(err error, _ time.Duration) {
	if errors.Is(err, agent.ErrSilent) && h.kind == agentOfOld {
		h.w.tr.violated("I2 pongSeen", "%s has left a relay for its silence that never knew the ping", h.label)
	}
}

// crash ends the process at once, or has it vanish.
func (h *hostProc) crash(vanish bool) {
	h.w.tr.log("%s crashes (vanish: %v)", h.label, vanish)
	h.kill()
	h.w.network.drop(h.process, vanish)
	h.cancel()
}

// running lists the processes of a host that have not ended.
func (w *World) running(host string) []*hostProc {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []*hostProc
	for _, h := range w.hosts[host] {
		if !h.isDead() {
			list = append(list, h)
		}
	}
	return list
}

// lead is the load balancer: where the next connection of a host's process goes.
// It skips nodes that are down, and knows nothing else.
func (w *World) lead(h *hostProc) string {
	if h.kind == agentOfOld {
		return oldRelayName
	}
	n := h.leads.Add(1)
	home := w.home(h.name)
	slots := w.schedule.slots()
	first := home
	if first < 0 {
		first = newRandom(w.schedule.Seed+uint64(n), h.label).intn(len(slots))
	}
	for i := range slots {
		if slot := slots[(first+i)%len(slots)]; w.takes(slot) {
			return slot
		}
	}
	return slots[first]
}
