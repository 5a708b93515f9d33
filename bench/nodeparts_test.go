package bench_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/store/redis"
)

// nodeKey is what the nodes share.
var nodeKey = []byte("the key of nodes that are measured")

func nodeID(i int) string { return fmt.Sprint("node-", i) }

// runNode is one of several relays on a Redis. It obeys "hops none" and "hops
// some", which check how many dial-backs it has handed to other nodes.
func runNode(id, redisURL string) error {
	client, err := redis.Open(redisURL)
	if err != nil {
		return err
	}
	defer client.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv, err := relay.New(relay.Config{
		Store:         redis.New(client, &redis.Options{Timeout: patient}),
		AuthorizeHost: relay.AllowAll, AuthorizeClient: relay.AllowAll,
		Node:         relay.Node{ID: id, URL: "http://" + ln.Addr().String(), Key: nodeKey},
		StoreTimeout: patient, NodeTimeout: patient,
	})
	if err != nil {
		return err
	}
	defer srv.Close()
	go serve(ln, srv)
	return serveLines(func(line string) error {
		hops := srv.Stats().Hops
		if line == "hops none" && hops == 0 || line == "hops some" && hops > 0 {
			return nil
		}
		return fmt.Errorf("%s has %d hops, asked for %q", id, hops, line)
	}, ln.Addr().String())
}

// runPlaced has so many hosts for each of placements, as far as this process
// goes: the rest of a placement is where the client dials.
func runPlaced(nodes []string, count int) error {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, p := range placements {
		for i := range count {
			h := &placedHost{control: nodes[0], data: nodes[p.dialBack], confirmed: make(chan string, 1)}
			a, err := agent.New(agent.Config{
				RelayURL: "http://" + h.control, HostID: p.host(i), Services: ownServices(),
				Transport: &http.Transport{DialContext: h.dial},
				Hooks:     agent.Hooks{Online: h.isOnline, Offline: h.isOffline},
			})
			if err != nil {
				return err
			}
			running.Go(func() { _ = a.Run(ctx) }) // its error is ctx's, or the host stays offline
			if err := h.await(nodeID(0)); err != nil {
				return fmt.Errorf("host %s: %w", p.host(i), err)
			}
		}
	}
	return wait(nodes...)
}

// placedHost steers what an agent dials. Dial-backs come only to a host that is
// online, and a host that is online dials nothing else.
type placedHost struct {
	// Immutable after it was made.
	control, data string
	confirmed     chan string // the node that confirmed the host first

	online atomic.Bool
}

func (h *placedHost) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	addr := h.control
	if h.online.Load() {
		addr = h.data
	}
	return new(net.Dialer).DialContext(ctx, network, addr)
}

func (h *placedHost) isOnline(o agent.Online) {
	h.online.Store(true)
	select {
	case h.confirmed <- o.Node:
	default: // it came back
	}
}

func (h *placedHost) isOffline(error) { h.online.Store(false) }

// await waits until the host is online, and checks where.
func (h *placedHost) await(want string) error {
	select {
	case got := <-h.confirmed:
		if got != want {
			return fmt.Errorf("its control socket is on %s, not on %s", got, want)
		}
		return nil
	case <-time.After(10 * time.Second):
		return fmt.Errorf("it does not get online")
	}
}
