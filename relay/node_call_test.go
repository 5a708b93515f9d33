package relay_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/internal/memnet"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/relaytest"
	"github.com/dialback/dialback/store/memory"
	"github.com/dialback/dialback/store/storetest"
	"github.com/dialback/dialback/transport"
)

// idleCluster is nodes a millisecond from each other, whose embedder's http.Server
// closes idle connections after 5 s.
func idleCluster(t *testing.T, n int) *relaytest.Cluster {
	return relaytest.NewCluster(t, n, &relaytest.Options{
		HTTP: func(s *http.Server) { s.IdleTimeout = 5 * time.Second },
		Config: func(cfg *relay.Config) {
			dial := cfg.Node.DialContext
			cfg.Node.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := dial(ctx, network, addr)
				if err == nil {
					c.(*memnet.Conn).SetLatency(time.Millisecond)
				}
				return c, err
			}
		},
	})
}

// Requests at the cadence of the idle clock of a node's server: none meets the
// close of a connection that is kept (report C, between nodes).
func TestReportC_SteadyCadenceBetweenNodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := idleCluster(t, 2)
		c.Nodes[0].MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("ok")})
		time.Sleep(3 * time.Second)
		bad := map[string]int{}
		for range 20 {
			r := get(c.Nodes[1], "/hosts/h/x")
			bad[fmt.Sprint(r.status, " ", r.header.Get("Dialback-Error"))]++
			time.Sleep(5*time.Second - r.took)
		}
		if bad["200 "] != 20 {
			t.Errorf("every 5.000 s: %v", bad)
		}
	})
}

// Nor does a call that is made once.
func TestCluster_RevokeMeetsAnIdleClose(t *testing.T) {
	lost := 0
	for off := -1500 * time.Microsecond; off <= 1500*time.Microsecond; off += 100 * time.Microsecond {
		bubble(t, func(t *testing.T) {
			c := idleCluster(t, 2)
			h := c.Nodes[0].MustConnect("h", relaytest.HostConfig{Proto: 3})
			time.Sleep(3 * time.Second)
			conns := make(chan transport.Conn, 1)
			go func() { conns <- byConnect(t, c.Nodes[1], "h") }()
			host, err := h.Open(nextDial(t, h))
			if err != nil {
				t.Fatal(err)
			}
			defer host.Close()
			client := <-conns
			// The host of another client refuses through node 0: a call of node 0 to node 1.
			conn := byConnect(t, c.Nodes[1], "h")
			for {
				d := nextDial(t, h)
				h.Refuse(d, 403, "no")
				if d.Kind == transport.KindTCP {
					break
				}
			}
			closeOf(conn)
			start := time.Now()
			time.Sleep(time.Until(start.Add(5*time.Second + off)))
			if err := c.Nodes[0].Relay.Revoke(context.Background(), "h", "stolen"); err != nil {
				t.Fatal(err)
			}
			wantClosed(t, h, "the control socket", transport.CloseForbidden)
			ended := make(chan *transport.CloseError, 1)
			go func() { ended <- closeOf(client) }()
			select {
			case <-ended:
			case <-time.After(10 * time.Minute):
				lost++
				client.CloseNow()
				<-ended
			}
		})
	}
	if lost > 0 {
		t.Errorf("%d of 31 streams on node 1 live on, 10 minutes after Revoke returned nil", lost)
	}
}

// Over HTTP/2 all calls to a node would be on one connection, and one that the
// network has forgotten would fail them all.
func TestCluster_CallsAreHTTP1(t *testing.T) {
	s := server(t, nil)
	defer s.Close()
	node := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	node.EnableHTTP2 = true
	node.StartTLS()
	defer node.Close()
	tr := relay.NodeTransport(s.Relay).Clone()
	defer tr.CloseIdleConnections()
	tr.TLSClientConfig, tr.ForceAttemptHTTP2, tr.DialContext = node.Client().Transport.(*http.Transport).TLSClientConfig.Clone(), true, nil
	tr.TLSClientConfig.NextProtos = nil
	resp, err := (&http.Client{Transport: tr}).Get(node.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.ProtoMajor != 1 {
		t.Errorf("a call over %s, want HTTP/1.1", resp.Proto)
	}
}

// What fits into a stream:dial fits into the call between nodes.
func TestCluster_LongQuery(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 2, nil)
		c.Nodes[0].MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("ok")})
		time.Sleep(3 * time.Second)
		q := "/hosts/h/x?" + strings.Repeat("&", 60<<10)
		get(c.Nodes[0], q).want(t, "on the host's node", 200, "ok")
		get(c.Nodes[1], q).want(t, "on another node", 200, "ok")
	})
}

// What stands before a node may answer a hop 503: the agent tries again, as after
// any 503.
func TestCluster_HopThatIsAnswered503(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var busy atomic.Int32
		c := relaytest.NewCluster(t, 2, &relaytest.Options{Wrap: func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/node/hop" && busy.Add(1) == 1 {
					w.WriteHeader(503)
					return
				}
				h.ServeHTTP(w, r)
			})
		}})
		c.Nodes[0].StartAgentOn(c.Nodes[0].Transport(), "h", map[string]agent.Handler{"": text("ok")}, nil)
		time.Sleep(3 * time.Second)
		r := get(c.Nodes[1], "/hosts/h/x")
		r.want(t, "one hop was answered 503", 200, "ok")
	})
}

// A ticket of a node that is gone for good may be brought again and again.
func TestCluster_OldTicketDoesNotLoadTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, ways := faultyCluster(t, 2, memory.New())
		h := c.Nodes[0].MustConnect("h", relaytest.HostConfig{})
		reply := async(c.Nodes[1], "/hosts/h/x")
		d := nextDial(t, h)
		h.Refuse(d, 404, "no")
		<-reply
		c.Nodes[1].Relay.Close()
		time.Sleep(time.Hour)
		before := ways[0].Calls("Nodes")
		statuses := map[string]int{}
		start := time.Now()
		for range 500 {
			_, err := c.Nodes[0].DialBackAs("h", d)
			statuses[fmt.Sprint(err)]++
		}
		n := ways[0].Calls("Nodes") - before
		t.Logf("in %v: %d reads of the table of nodes, %v", time.Since(start), n, statuses)
		if n > 10 {
			t.Errorf("500 requests with an old ticket: %d reads of the Store", n)
		}
	})
}

// A second process of the host comes and dies while its claim is answered. The living one is
// told, and is back within a few seconds.
func TestCluster_NewcomerDiesDuringItsClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, ways := faultyCluster(t, 2, memory.New())
		c.Nodes[0].StartAgentOn(c.Nodes[0].Transport(), "h", map[string]agent.Handler{"": text("alive")}, nil)
		time.Sleep(32 * time.Second)
		get(c.Nodes[1], "/hosts/h/x").want(t, "before", 200, "alive")
		time.Sleep(2 * time.Second)
		ways[1].Set("Claim", storetest.Fault{Delay: 20 * time.Millisecond, After: true})
		conn, err := c.Nodes[1].DialWS(context.Background(), "/v2/control?hostId=h", &transport.DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		conn.CloseNow()
		time.Sleep(20 * time.Millisecond)
		start := time.Now()
		var last reply
		for time.Since(start) < 2*time.Minute {
			if last = get(c.Nodes[1], "/hosts/h/x"); last.status == 200 {
				break
			}

			time.Sleep(3 * time.Second)
		}
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("a living host was offline for %v", d)
		}
	})
}
