package relay_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/internal/memnet"
	"github.com/dialback/dialback/relaytest"
)

// farOneWay is what a byte takes to the far hosts of these tests, or back.
const farOneWay = 25 * time.Millisecond

// farHosts are the ways in which an agent answers requests.
var farHosts = []struct {
	name     string
	services func(t *testing.T) map[string]agent.Handler
}{
	{"answers itself", func(*testing.T) map[string]agent.Handler { return handler(echoBody) }},
	{"forwards", forwardToEcho},
}

func echoBody(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }

// forwardToEcho forwards to a server beside the agent.
func forwardToEcho(t *testing.T) map[string]agent.Handler {
	local := &memnet.Network{}
	ln, err := local.Listen("service.test:80")
	if err != nil {
		t.Fatal(err)
	}
	service := &http.Server{Handler: http.HandlerFunc(echoBody)}
	go service.Serve(ln)
	t.Cleanup(func() { service.Close() })
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := local.DialContext(ctx, network, addr)
		return withoutDeadline{c}, err
	}
	return map[string]agent.Handler{"": agent.ForwardHTTPWith("http://service.test:80", agent.HTTPOptions{DialContext: dial})}
}

// withoutDeadline is a connection at which an agent does not look before it
// uses it again: at a socket it does that without waiting, at any other
// connection by a read with a deadline, which would show here.
type withoutDeadline struct{ net.Conn }

func (withoutDeadline) SetReadDeadline(time.Time) error { return os.ErrNoDeadline }

// farRequests are requests to a far host whose last one was answered pause ago,
// and what they cost.
var farRequests = []struct {
	why          string
	method, body string
	header       http.Header
	pause        time.Duration
	trips        int
}{
	{"nothing comes before what may be sent twice", "GET", "", nil, 10 * time.Second, 1},
	{"nor after a long pause", "GET", "", nil, 80 * time.Second, 1},
	{"nor before a key that makes it safe", "POST", "", http.Header{"Idempotency-Key": {"k"}}, 10 * time.Second, 1},
	{"the host proves first that it lives", "POST", "body", nil, 10 * time.Second, 2},
	{"with a body or without", "POST", "", nil, 10 * time.Second, 2},
	{"it has only just proved it", "POST", "body", nil, 250*time.Millisecond - 1, 1},
	{"it no longer has", "POST", "body", nil, 250 * time.Millisecond, 2},
}

// askFar sends farRequests to host h by way of s, and checks what they cost.
func askFar(t *testing.T, s *relaytest.Server) {
	t.Helper()
	if first := get(s, "/hosts/h/"); first.status != 200 || first.took < 6*farOneWay {
		t.Fatalf("the first request was answered %d in %v: the host is not far", first.status, first.took)
	}
	for _, tt := range farRequests {
		time.Sleep(tt.pause)
		req, _ := http.NewRequest(tt.method, s.URL+"/hosts/h/", strings.NewReader(tt.body))
		for name, values := range tt.header {
			req.Header[name] = values
		}
		start := time.Now()
		resp, body, err := s.DoRequest(req)
		took := time.Since(start)
		if err != nil || resp.StatusCode != 200 || body != tt.body {
			t.Fatalf("%s after %v: %v, %q, %v", tt.method, tt.pause, resp, body, err)
		}
		if want := time.Duration(tt.trips) * 2 * farOneWay; took != want {
			t.Errorf("%s of %q after %v took %v, want %v: %s", tt.method, tt.body, tt.pause, took, want, tt.why)
		}
	}
}

// A request to a far host that was in use costs one round trip, however long
// ago that was, and one that cannot be sent twice costs a second for the proof.
func TestPool_RequestAfterAPauseCostsOneRoundTrip(t *testing.T) {
	for _, host := range farHosts {
		t.Run(host.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := server(t, noSpares) // which would hide that no stream was kept
				s.StartAgentOn(s.FarTransport(farOneWay), "h", host.services(t), nil)
				askFar(t, s)
				if n := s.Relay.Stats().DialBacks; n != 1 {
					t.Errorf("%d dial-backs, want 1: streams are kept", n)
				}
			})
		})
	}
}

// A stream that was watched while it was idle goes back to the pool as whole as
// any other.
func TestPool_WatchedStreamsAreKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, noSpares)
		s.StartAgent("h", handler(echoBody), nil)
		for range 1000 {
			get(s, "/hosts/h/").want(t, "a request after a pause", 200, "")
			time.Sleep(300 * time.Millisecond)
		}
		if n := s.Relay.Stats().DialBacks; n != 1 {
			t.Errorf("%d dial-backs for 1000 requests one after the other, want 1", n)
		}
	})
}

// With client, control socket and dial-backs on three nodes it costs the same:
// nothing of a request that goes over a kept stream waits for another node.
func TestCluster_RequestAfterAPauseCostsTheSame(t *testing.T) {
	for _, host := range farHosts {
		t.Run(host.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := relaytest.NewCluster(t, 3, &relaytest.Options{Config: noSpares})
				c.Nodes[0].StartAgentOn(farAndSplit(c), "h", host.services(t), nil)
				time.Sleep(3 * time.Second) // the tables of nodes are read
				askFar(t, c.Nodes[1])
				if n := c.Nodes[2].Relay.Stats().Hops; n != 1 {
					t.Errorf("node 2 handed %d dial-backs on, want 1", n)
				}
			})
		})
	}
}

// farAndSplit is the transport of a far agent whose control socket is on node 0
// and whose dial-backs land on node 2.
func farAndSplit(c *relaytest.Cluster) *http.Transport {
	tr := c.Nodes[0].FarTransport(farOneWay)
	far := tr.DialContext
	var dials atomic.Int32
	tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials.Add(1) > 1 {
			addr = strings.TrimPrefix(c.Nodes[2].URL, "http://")
		}
		return far(ctx, network, addr)
	}
	return tr
}
