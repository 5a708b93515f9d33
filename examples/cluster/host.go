package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/dialback/dialback/agent"
)

// workTime is how long a host takes to answer, so that some calls are on their
// way when something breaks.
const workTime = 30 * time.Millisecond

// host is a machine that is reached through the relay. It listens nowhere.
type host struct {
	id     string
	cancel context.CancelFunc
	done   chan struct{} // closed when the agent has ended
}

// startHost runs an agent and waits until a node has confirmed it.
func startHost(ctx context.Context, relayURL, id string) (*host, error) {
	online := make(chan struct{}, 1)
	a, err := agent.New(agent.Config{
		RelayURL: relayURL,
		HostID:   id,
		Services: map[string]agent.Handler{"": agent.HTTP(site(id))},
		Hooks: agent.Hooks{Online: func(agent.Online) {
			select {
			case online <- struct{}{}:
			default: // only the first one is waited for
			}
		}},
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	h := &host{id: id, cancel: cancel, done: make(chan struct{})}
	go h.run(ctx, a)
	select {
	case <-online:
		return h, nil
	case <-h.done:
		return nil, errors.New("interrupted before the host was online")
	}
}

func (h *host) run(ctx context.Context, a *agent.Agent) {
	defer close(h.done)
	_ = a.Run(ctx) // returns when ctx ends, and only then
}

// stop takes the host from the relay.
func (h *host) stop() {
	h.cancel()
	<-h.done
}

// site is what a host serves.
func site(id string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(workTime):
			fmt.Fprintf(w, "Hello from %s", id)
		}
	})
}
