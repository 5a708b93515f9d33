package relay_test

import (
	"context"
	"io"
	"log"
	"net/http"
	"testing"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/relaytest"
	"github.com/dialback/dialback/store/storetest"
	"github.com/dialback/dialback/transport"
)

// impatient are http.Servers whose timeouts are shorter than what is waited for.
var impatient = map[string]func(*http.Server){
	"ReadTimeout":  func(hs *http.Server) { hs.ReadTimeout, hs.ErrorLog = time.Second, log.New(io.Discard, "", 0) },
	"WriteTimeout": func(hs *http.Server) { hs.WriteTimeout, hs.ErrorLog = time.Second, log.New(io.Discard, "", 0) },
}

// The server's own ReadTimeout and WriteTimeout do not cut exchanges (I8).
func TestHTTP_ImmuneToTheEmbeddersTimeouts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := relaytest.NewServer(t, &relaytest.Options{HTTP: func(hs *http.Server) { hs.ReadTimeout, hs.WriteTimeout = time.Second, time.Second }})
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(5 * time.Second)
			io.WriteString(w, "late")
		}), nil)
		get(s, "/hosts/h/x").want(t, "after 5 s with a WriteTimeout of 1 s", 200, "late")
		time.Sleep(time.Minute)
		get(s, "/hosts/h/x").want(t, "the control socket lives on", 200, "late")
	})
}

// slowly authorizes everybody who is still there after 2 s.
func slowly(ctx context.Context, _ *http.Request, _ string) (relay.Identity, error) {
	timer := time.NewTimer(2 * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
		return relay.Identity{}, nil
	case <-ctx.Done():
		return relay.Identity{}, relay.Deny(relay.ErrForbidden, "the request has ended")
	}
}

// wsRequest asks for a WebSocket at path.
func wsRequest(s *relaytest.Server, path string) *http.Request {
	req, _ := http.NewRequest("GET", s.URL+path, nil)
	req.Header = http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"},
		"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
	}
	return req
}

// Nor do they cut a handshake that waits for its host, or the answer that it
// has not come.
func TestUpgrade_ImmuneToTheEmbeddersTimeouts(t *testing.T) {
	for name, set := range impatient {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := relaytest.NewServer(t, &relaytest.Options{HTTP: set})
				h := s.MustConnect("h", relaytest.HostConfig{})
				opened := make(chan error, 1)
				go func() {
					c, err := s.DialWS(context.Background(), "/hosts/h/x", nil)
					if err == nil {
						c.CloseNow()
					}
					opened <- err
				}()
				d := nextDial(t, h)
				time.Sleep(3 * time.Second) // of the 10 that the host has
				if _, err := h.DialBack(d); err != nil {
					t.Fatal(err)
				}
				if err := <-opened; err != nil {
					t.Errorf("a host that took 3 s: %v", err)
				}
				resp, body, err := s.DoRequest(wsRequest(s, "/hosts/h/x"))
				if err != nil || resp.StatusCode != 504 {
					t.Errorf("a silent host: %v %q %v, want 504", resp, body, err)
				}
			})
		})
	}
}

// Nor what waits for the Store, for another node or for the embedder's own
// functions.
func TestCluster_ImmuneToTheEmbeddersTimeouts(t *testing.T) {
	for name, set := range impatient {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var slow []*storetest.Faulty
				c := relaytest.NewCluster(t, 2, &relaytest.Options{HTTP: set, Config: func(cfg *relay.Config) {
					f := storetest.NewFaulty(cfg.Store)
					slow, cfg.Store = append(slow, f), f
					cfg.StoreTimeout, cfg.NodeTimeout = 5*time.Second, 5*time.Second
					cfg.AuthorizeHost, cfg.AuthorizeClient = slowly, slowly
				}})
				time.Sleep(10 * time.Second) // the nodes know each other
				for _, f := range slow {
					f.Set("Current", storetest.Fault{Delay: 2 * time.Second})
					f.Set("LastSeen", storetest.Fault{Delay: 2 * time.Second})
				}
				c.Nodes[0].StartAgentOn(c.Balanced(0), "h", map[string]agent.Handler{"": text("hello"), "echo": echo()}, nil)
				for range 2 {
					for _, n := range c.Nodes {
						get(n, "/hosts/h/").want(t, "an exchange", 200, "hello")
						get(n, "/hosts/h/_whoowns").want(t, "_whoowns", 200, "true")
						get(n, "/presence?hostIds=h").want(t, "presence", 200, "true")
						conn, err := n.DialWS(context.Background(), "/connect/h?service=echo", nil)
						if err != nil {
							t.Fatalf("a byte stream: %v", err)
						}
						stream := transport.NewStreamConn(conn)
						io.WriteString(stream, "there and back")
						stream.CloseWrite()
						if b, err := io.ReadAll(stream); string(b) != "there and back" || err != nil {
							t.Errorf("a byte stream: %q, %v", b, err)
						}
					}
				}
				if c.Nodes[0].Relay.Stats().Hops+c.Nodes[1].Relay.Stats().Hops == 0 {
					t.Error("no dial-back landed elsewhere: the test tests nothing")
				}
			})
		})
	}
}
