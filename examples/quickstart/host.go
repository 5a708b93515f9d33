package main

import (
	"context"
	"errors"
	"net/http"

	"github.com/dialback/dialback/agent"
)

// hostID is the name under which clients reach the host.
const hostID = "laptop"

// host is a machine that is reached through the relay. It listens nowhere.
type host struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the agent has ended
}

// startHost runs an agent that serves the page of this example, and waits until
// the relay has confirmed it. network is the host's way to the relay; nil is
// the ordinary one.
func startHost(ctx context.Context, relayURL, name string, network *http.Transport) (*host, error) {
	online := make(chan struct{}, 1)
	a, err := agent.New(agent.Config{
		RelayURL:  relayURL,
		HostID:    hostID,
		Services:  map[string]agent.Handler{"": agent.HTTP(newSite(name))},
		Transport: network,
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
	h := &host{cancel: cancel, done: make(chan struct{})}
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
