package relay_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/relaytest"
	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/memory"
	"github.com/dialback/dialback/transport"
)

// watchedStore notes what it is given and how often it is asked for a host.
type watchedStore struct {
	store.Store

	mu    sync.Mutex
	given strings.Builder
	reads int
}

func (s *watchedStore) note(what ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(&s.given, "%+v\n", what)
}

func (s *watchedStore) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.given.String()
}

func (s *watchedStore) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

func (s *watchedStore) Claim(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
	s.note(a)
	return s.Store.Claim(ctx, a, ttl)
}

func (s *watchedStore) Current(ctx context.Context, hostID string) (store.Attachment, error) {
	s.note(hostID)
	s.mu.Lock()
	s.reads++
	s.mu.Unlock()
	return s.Store.Current(ctx, hostID)
}

func (s *watchedStore) LastSeen(ctx context.Context, hostIDs []string) (map[string]store.Seen, error) {
	s.mu.Lock()
	s.reads++
	s.mu.Unlock()
	return s.Store.LastSeen(ctx, hostIDs)
}

func (s *watchedStore) Ping(ctx context.Context, as []store.Attachment, ttl time.Duration) ([]bool, error) {
	s.note(as)
	return s.Store.Ping(ctx, as, ttl)
}

func (s *watchedStore) PutSockets(ctx context.Context, as []store.Attachment, ttl time.Duration) error {
	s.note(as)
	return s.Store.PutSockets(ctx, as, ttl)
}

func (s *watchedStore) KeepNode(ctx context.Context, n store.Node, lease time.Duration) (bool, error) {
	s.note(n)
	return s.Store.KeepNode(ctx, n, lease)
}

// Whoever reads the Store learns where hosts are, and no token, no ticket, no
// key and nothing of what goes over the streams.
func TestStore_HoldsNoSecret(t *testing.T) {
	bubble(t, func(t *testing.T) {
		watched := &watchedStore{Store: memory.New()}
		const key = "the-key-of-all-the-nodes"
		s := server(t, func(c *relay.Config) {
			c.Store, c.AuthorizeHost, c.AuthorizeClient = watched, tokens(hostToken), tokens(clientToken)
			c.Node = relay.Node{ID: "a", URL: "http://relay.test:80", Key: []byte(key)}
		})
		var tickets []string
		h := s.MustConnect("h", relaytest.HostConfig{Token: hostToken("h"), OnDial: func(h *relaytest.Host, d transport.StreamDial) {
			tickets = append(tickets, d.Ticket, strings.Split(d.Ticket, ".")[1])
			relaytest.AnswerText("the-answer")(h, d)
		}})
		s.StartAgent("agent", map[string]agent.Handler{"": text("the-answer"), "echo": echo()}, &agent.Config{
			Token: func(context.Context) (string, error) { return hostToken("agent"), nil },
		})
		for _, host := range []string{"h", "agent"} {
			get(s, "/hosts/"+host+"/the-path?token="+clientToken(host)+"&the-query").want(t, host, 200, "the-answer")
		}
		conn, err := s.Relay.Dial(t.Context(), "agent", relay.Target{Service: "echo"}) // long enough to be recorded
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "the-bytes")
		h.Send(transport.Ping{})
		time.Sleep(time.Minute)
		synctest.Wait()
		given := watched.all()
		if !strings.Contains(given, "Role:dial") || !strings.Contains(given, "HostID:agent") || len(tickets) == 0 {
			t.Fatalf("the Store was given %s: this test has nothing to test", given)
		}
		secrets := append(tickets, key, hostToken("h"), hostToken("agent"), clientToken("h"), clientToken("agent"), "the-path", "the-query", "the-answer", "the-bytes")
		for _, secret := range secrets {
			if strings.Contains(given, secret) {
				t.Errorf("the Store was given %q", secret)
			}
		}
	})
}

// A stranger is told the same of a host that is there and of one that is not.
func TestAuth_StrangerLearnsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, func(c *relay.Config) { c.AuthorizeHost, c.AuthorizeClient = tokens(hostToken), tokens(clientToken) })
		s.MustConnect("here", relaytest.HostConfig{Token: hostToken("here")})
		for _, path := range []string{"/hosts/%s/x", "/hosts/%s/_whoowns", "/connect/%s?service=a", "/presence?hostIds=%s", "/v2/control?hostId=%s", "/v2/dial?hostId=%s&ticket=a.b.c"} {
			here, gone := get(s, fmt.Sprintf(path, "here")), get(s, fmt.Sprintf(path, "gone"))
			if here.status != gone.status || here.body != gone.body || here.took != gone.took || here.status == 200 && here.body != "{\"hosts\":{}}\n" {
				t.Errorf("%s: %d %q after %v for a host that is there, %d %q after %v for one that is not",
					path, here.status, here.body, here.took, gone.status, gone.body, gone.took)
			}
		}
	})
}

// Garbage for a ticket costs the Store and the other nodes nothing.
func TestTicket_GarbageAsksNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		watched := &watchedStore{Store: memory.New()}
		s := server(t, func(c *relay.Config) { c.Store = watched })
		s.MustConnect("h", relaytest.HostConfig{})
		before := watched.asked()
		good := s.Relay.ForgeTicket("other-node", "h")
		other := "A" // than the last character of good, which has four
		if strings.HasSuffix(good, other) {
			other = "Q"
		}
		for _, ticket := range []string{"", "a.b.c", good[:len(good)-1] + other, good + "x", strings.Repeat("x", 10_000)} {
			if _, err := s.DialWS(t.Context(), "/v2/dial?hostId=h&ticket="+ticket, nil); handshakeStatus(err) != 404 {
				t.Errorf("ticket %.40q: %v, want a plain 404", ticket, err)
			}
		}
		if n := watched.asked() - before; n != 0 {
			t.Errorf("garbage has asked the Store %d times", n)
		}
	})
}

// A token of one host attaches no other: the function gets the ID that is asked
// for.
func TestAuth_HostTokenIsForItsHost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, func(c *relay.Config) { c.AuthorizeHost = tokens(hostToken) })
		s.MustConnect("h", relaytest.HostConfig{Token: hostToken("h")})
		var ce *transport.CloseError
		if _, err := s.Connect("other", relaytest.HostConfig{Token: hostToken("h")}); !errors.As(err, &ce) || ce.Code != transport.CloseUnauthorized {
			t.Errorf("the token of another host: %v, want a close with 4401", err)
		}
	})
}
