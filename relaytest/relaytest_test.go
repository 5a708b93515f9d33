package relaytest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/relaytest"
	"github.com/dialback/dialback/transport"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// This is how a server that embeds a relay is tested: its own handler around
// the relay, an agent for the host, and fake time.
func TestServer_EmbeddedInAHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := relaytest.NewServer(t, &relaytest.Options{Prefix: "/relay", Wrap: func(h http.Handler) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/relay/", http.StripPrefix("/relay", h))
			mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "the embedder's own page") })
			return mux
		}})
		stop := s.StartAgent("laptop", map[string]agent.Handler{"": agent.HTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "hello from the laptop")
		}))}, nil)
		_, body, err := s.Do("GET", "/hosts/laptop/", nil)
		if err != nil || body != "hello from the laptop" {
			t.Errorf("through the relay: %q %v", body, err)
		}
		stop()
		time.Sleep(2 * time.Second) // ReconnectGrace
		resp, body, err := s.Do("GET", "/hosts/laptop/", nil)
		if err != nil || resp.StatusCode != 503 || !strings.Contains(body, "host_offline") {
			t.Errorf("after the agent has stopped: %v %q %v", resp, body, err)
		}
	})
}

// A scripted host answers, refuses, hangs and vanishes.
func TestHost_Scripts(t *testing.T) {
	tests := []struct {
		name   string
		script func(*relaytest.Host, transport.StreamDial)
		status int
		body   string
		took   time.Duration
	}{
		{"answers", relaytest.AnswerText("hi"), 200, "hi", 0},
		{"refuses", func(h *relaytest.Host, d transport.StreamDial) { h.Refuse(d, 403, "no") }, 403, "no", 0},
		{"hangs", func(*relaytest.Host, transport.StreamDial) {}, 504, "no_dial_back", 10 * time.Second},
		{"vanishes", func(h *relaytest.Host, _ transport.StreamDial) { h.Vanish() }, 503, "host_gone", 2 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := relaytest.NewServer(t, nil)
				s.MustConnect("h", relaytest.HostConfig{OnDial: tt.script})
				start := time.Now()
				resp, body, err := s.Do("GET", "/hosts/h/x", nil)
				if err != nil || resp.StatusCode != tt.status || !strings.Contains(body, tt.body) || time.Since(start) != tt.took {
					t.Errorf("%v %q %v after %v, want %d %q after %v", resp, body, err, time.Since(start), tt.status, tt.body, tt.took)
				}
			})
		})
	}
}

func TestHost_ConnectReportsADenial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := relaytest.NewServer(t, &relaytest.Options{Config: func(c *relay.Config) { c.AuthorizeHost = nil }})
		for _, proto := range []int{2, 3} {
			if _, err := s.Connect("h", relaytest.HostConfig{Proto: proto}); transport.CloseCodeOf(err) != transport.CloseForbidden {
				t.Errorf("proto %d: %v, want 4403", proto, err)
			}
		}
	})
}

func TestHost_CountsFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := relaytest.NewServer(t, nil)
		h := s.MustConnect("h", relaytest.HostConfig{Proto: 3})
		h.Send(transport.Ping{})
		time.Sleep(time.Second)
		if n := relaytest.Count[transport.Pong](h); n != 1 {
			t.Errorf("%d pongs in %v, want 1", n, h.Frames())
		}
		if n := relaytest.Count[transport.Hello](h); n != 1 {
			t.Errorf("%d hellos, want 1", n)
		}
		h.Close()
		if ce := <-h.Closed(); ce.Code != transport.CloseNormal {
			t.Errorf("closed with %d", ce.Code)
		}
	})
}

// A cluster whose nodes can be killed and frozen.
func TestCluster_KillAndFreeze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 3, nil)
		c.Nodes[0].StartAgentOn(c.Balanced(0), "h", map[string]agent.Handler{"": agent.HTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "served") }))}, nil)
		c.Nodes[0].Kill()
		if _, _, err := c.Nodes[0].Do("GET", "/health", nil); err == nil {
			t.Error("a killed node answers")
		}
		time.Sleep(5 * time.Second)
		if _, body, err := c.Nodes[1].Do("GET", "/hosts/h/", nil); body != "served" {
			t.Errorf("after the kill: %q %v", body, err)
		}
		c.Nodes[2].Freeze()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, "GET", c.Nodes[2].URL+"/health", nil)
		if _, _, err := c.Nodes[2].DoRequest(req); ctx.Err() == nil {
			t.Errorf("a frozen node answers: %v", err)
		}
	})
}

// A single server can be killed as well.
func TestServer_Kill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := relaytest.NewServer(t, nil)
		h := s.MustConnect("h", relaytest.HostConfig{})
		s.Kill()
		<-h.Closed()
		if _, _, err := s.Do("GET", "/health", nil); err == nil {
			t.Error("a killed server answers")
		}
		s.Close()
		if _, err := s.Store.Current(context.Background(), "h"); err != nil {
			t.Errorf("the Store has learned of the end: %v", err)
		}
	})
}

// What a node that is frozen or killed would say to the others does not arrive,
// on a new connection or on one that it has.
func TestCluster_NothingGetsOut(t *testing.T) {
	for name, stop := range map[string]func(*relaytest.Server){"freeze": (*relaytest.Server).Freeze, "kill": (*relaytest.Server).Kill} {
		for _, known := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, connection %v", name, known), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := relaytest.NewCluster(t, 2, nil)
					h := c.Nodes[1].MustConnect("h", relaytest.HostConfig{Proto: 3})
					time.Sleep(3 * time.Second) // the nodes know each other
					dial := func() {
						ctx, cancel := context.WithTimeout(context.Background(), time.Second)
						defer cancel()
						if conn, err := c.Nodes[0].Relay.Dial(ctx, "h", relay.Target{}); err == nil {
							conn.Close()
						}
					}
					if known {
						dial()
						<-h.Dials()
					}
					stop(c.Nodes[0])
					dial()
					time.Sleep(10 * time.Second)
					select {
					case <-h.Dials():
						t.Error("a call of the other node has arrived")
					default:
					}
				})
			})
		}
	}
}

// A store that loses everything is filled again by the nodes.
func TestLossyStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := relaytest.NewLossyStore()
		s := relaytest.NewServer(t, &relaytest.Options{Config: func(c *relay.Config) { c.Store = st }})
		s.MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("still here")})
		st.Lose()
		if _, body, err := s.Do("GET", "/hosts/h/", nil); body != "still here" {
			t.Errorf("%q %v", body, err)
		}
	})
}
