package bench_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dialback/dialback/agent"
)

// farHosts are hosts of one process that come and go as they are told to.
type farHosts struct {
	relay    string
	services map[string]map[string]agent.Handler // by kind: forwardHost or ownHost
	running  map[string]func()                   // what ends a host, by its ID
}

// runFarHosts obeys "come KIND ID", which waits until the host is online, and
// "go ID".
func runFarHosts(relay, web, greeting string) error {
	h := &farHosts{
		relay:    relay,
		services: map[string]map[string]agent.Handler{forwardHost: forwardServices(web, greeting), ownHost: ownServices()},
		running:  make(map[string]func()),
	}
	defer h.stop()
	return serveLines(h.obey)
}

func (h *farHosts) obey(line string) error {
	words := strings.Fields(line)
	switch {
	case len(words) == 3 && words[0] == "come" && h.services[words[1]] != nil:
		stop, err := startAgent(h.relay, words[2], h.services[words[1]])
		if err != nil {
			return err
		}
		h.running[words[2]] = stop
		return nil
	case len(words) == 2 && words[0] == "go" && h.running[words[1]] != nil:
		h.running[words[1]]()
		delete(h.running, words[1])
		return nil
	}
	return fmt.Errorf("unknown order %q", line)
}

func (h *farHosts) stop() {
	for _, stop := range h.running {
		stop()
	}
}

// startAgent runs an agent and waits until it is online. stop ends it and waits
// for it.
func startAgent(relayAddr, hostID string, services map[string]agent.Handler) (stop func(), err error) {
	online := make(chan struct{}, 1)
	a, err := agent.New(agent.Config{
		RelayURL: "http://" + relayAddr, HostID: hostID, Services: services,
		Hooks: agent.Hooks{Online: func(agent.Online) {
			select {
			case online <- struct{}{}:
			default:
			}
		}},
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	stop = func() {
		cancel()
		<-ended
	}
	select {
	case <-online:
		return stop, nil
	case <-time.After(10 * time.Second):
		stop()
		return nil, fmt.Errorf("host %s does not get online", hostID)
	}
}
