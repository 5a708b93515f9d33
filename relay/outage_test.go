package relay_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/relaytest"
	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/memory"
	"github.com/dialback/dialback/store/storetest"
	"github.com/dialback/dialback/transport"
)

// shards is a Store of several shards, as a Redis Cluster is. While one is down,
// all calls fail that are about a host in it, whose ID begins with "bad"; those
// about other hosts only, or about nodes, go on.
type shards struct {
	store.Store
	down  *atomic.Bool
	pings *atomic.Int64
}

var errShard = errors.New("CLUSTERDOWN the master of that slot is down")

func (s shards) fails(ids ...string) bool {
	return s.down.Load() && slices.ContainsFunc(ids, func(id string) bool { return strings.HasPrefix(id, "bad") })
}

func (s shards) Ping(ctx context.Context, as []store.Attachment, ttl time.Duration) ([]bool, error) {
	s.pings.Add(1)
	for _, a := range as {
		if s.fails(a.HostID) {
			return nil, errShard
		}
	}
	return s.Store.Ping(ctx, as, ttl)
}

func (s shards) Claim(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
	if s.fails(a.HostID) {
		return store.Claimed{}, errShard
	}
	return s.Store.Claim(ctx, a, ttl)
}

func (s shards) Current(ctx context.Context, hostID string) (store.Attachment, error) {
	if s.fails(hostID) {
		return store.Attachment{}, errShard
	}
	return s.Store.Current(ctx, hostID)
}

func (s shards) Detach(ctx context.Context, ref store.Ref) error {
	if s.fails(ref.HostID) {
		return errShard
	}
	return s.Store.Detach(ctx, ref)
}

func (s shards) LastSeen(ctx context.Context, hostIDs []string) (map[string]store.Seen, error) {
	if s.fails(hostIDs...) {
		return nil, errShard
	}
	return s.Store.LastSeen(ctx, hostIDs)
}

// sharded returns n nodes on a Store whose shard of the hosts "bad…" may be down.
func sharded(t *testing.T, n int, config func(*relay.Config)) (*relaytest.Cluster, shards) {
	s := shards{down: new(atomic.Bool), pings: new(atomic.Int64)}
	c := relaytest.NewCluster(t, n, &relaytest.Options{Config: func(cfg *relay.Config) {
		cfg.Store = shards{cfg.Store, s.down, s.pings}
		s.Store = cfg.Store
		if config != nil {
			config(cfg)
		}
	}})
	t.Cleanup(func() {
		for _, node := range c.Nodes {
			node.Close()
		}
	})
	return c, s
}

func serving(text string) map[string]agent.Handler {
	return map[string]agent.Handler{"": agent.HTTP(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(text)) }))}
}

// One shard of the Store is down: that is an outage for its hosts, and for
// nobody else, however often they ping.
func TestOutage_OneShardIsNoneOfTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, st := sharded(t, 2, nil)
		c.Nodes[1].StartAgent("good", serving("ok"), nil)
		c.Nodes[0].StartAgent("bad", serving("ok"), nil)
		time.Sleep(5 * time.Second)
		st.down.Store(true)
		time.Sleep(40 * time.Second) // "bad" has pinged
		for range 100 {
			get(c.Nodes[0], "/hosts/good/").want(t, "a host in another shard", 200, "ok")
			get(c.Nodes[0], "/health").want(t, "one shard", 200, `{"ok":true,"proto":2}`)
			c.Nodes[0].MustConnect("other", relaytest.HostConfig{Proto: 3}).Close()
			time.Sleep(333 * time.Millisecond)
		}
	})
}

// Nor is it one when a host is asked for that is in the shard and not here.
func TestOutage_AskingForAHostOfAShardThatIsDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, st := sharded(t, 2, func(cfg *relay.Config) { cfg.MaxIdleStreams, cfg.MaxSpares = -1, -1 }) // each request is dialed
		c.Nodes[1].StartAgent("good", serving("ok"), nil)
		time.Sleep(5 * time.Second)
		st.down.Store(true)
		for range 100 {
			r := get(c.Nodes[0], "/hosts/bad/")
			r.want(t, "a host in the shard that is down", 503, "store_unavailable")
			r.wantWithin(t, "a host in the shard that is down", time.Second)
			get(c.Nodes[0], "/hosts/good/").want(t, "a host in another shard", 200, "ok")
			time.Sleep(333 * time.Millisecond)
		}
	})
}

// While its shard is down a host is served here or not as StoreOutage says, but
// no ping of it is answered: another node may have that shard. Once it is back,
// so are its hosts, without a ping of theirs.
func TestOutage_HostsOfAShardThatIsDown(t *testing.T) {
	for _, mode := range []relay.StoreOutage{relay.ServeLocal, relay.FailClosed} {
		bubble(t, func(t *testing.T) {
			c, st := sharded(t, 1, func(cfg *relay.Config) { cfg.StoreOutage = mode })
			s := c.Nodes[0]
			h := s.MustConnect("bad", relaytest.HostConfig{OnDial: relaytest.AnswerText("served")})
			time.Sleep(10 * time.Second)
			st.down.Store(true)
			h.Send(transport.Ping{})
			time.Sleep(3 * time.Second)
			if n := relaytest.Count[transport.Pong](h); n != 0 {
				t.Errorf("mode %v: %d pongs, want none: the Store has not named the socket current", mode, n)
			}
			if mode == relay.ServeLocal {
				get(s, "/hosts/bad/").want(t, "ServeLocal", 200, "served")
			} else {
				get(s, "/hosts/bad/").want(t, "FailClosed", 503, "store_unavailable")
			}
			wantOpen(t, h, "the shard is down")
			st.down.Store(false)
			back := time.Now()
			time.Sleep(6 * time.Second)
			if att, err := st.Current(t.Context(), "bad"); err != nil || att.LastPing.Before(back) {
				t.Errorf("mode %v: last confirmed %v before the shard came back, %v; want after it, within NodeBeat", mode, back.Sub(att.LastPing), err)
			}
		})
	}
}

// One batch has the pings of hosts in all shards. Those in a shard that is down
// cost the others nothing but their first batch, and the Store little.
func TestPing_OneShardDownHindersNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, st := sharded(t, 1, nil)
		var good, bad []*relaytest.Host
		for i := range 100 {
			good = append(good, c.Nodes[0].MustConnect(fmt.Sprint("good", i), relaytest.HostConfig{}))
			bad = append(bad, c.Nodes[0].MustConnect(fmt.Sprint("bad", i), relaytest.HostConfig{}))
		}
		time.Sleep(10 * time.Second)
		st.down.Store(true)
		for round := 1; round <= 4; round++ {
			if round == 4 {
				st.down.Store(false)
			}
			before := st.pings.Load()
			for i := range good {
				good[i].Send(transport.Ping{})
				bad[i].Send(transport.Ping{})
			}
			time.Sleep(2 * time.Second)
			for i := range good {
				if n := relaytest.Count[transport.Pong](good[i]); n != round {
					t.Errorf("round %d: %d pongs to a host in another shard, want %d", round, n, round)
				}
				if n, want := relaytest.Count[transport.Pong](bad[i]), max(0, round-3); n != want {
					t.Errorf("round %d: %d pongs to a host in the shard that is down until round 4, want %d", round, n, want)
				}
			}
			if n := st.pings.Load() - before; round > 1 && n > 80 {
				t.Errorf("round %d: %d calls of Ping, want fewer than hosts: those in doubt are asked for apart, and a few of them alone", round, n)
			}
			time.Sleep(8 * time.Second)
		}
	})
}

// What is owed to a shard that is down keeps nothing from being written to the
// others.
func TestOutage_WhatIsOwedToOneShardHindersNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var all *storetest.Faulty
		c, st := sharded(t, 1, func(cfg *relay.Config) {
			all = storetest.NewFaulty(cfg.Store)
			cfg.Store = all
		})
		bad := c.Nodes[0].MustConnect("bad", relaytest.HostConfig{})
		good := c.Nodes[0].MustConnect("good", relaytest.HostConfig{})
		all.Set("*", storetest.Fault{Err: errors.New("down")})
		st.down.Store(true)
		bad.Vanish()
		time.Sleep(3 * time.Second)
		good.Vanish()
		time.Sleep(3 * time.Second)
		all.Clear()
		time.Sleep(3 * time.Second)
		if _, err := st.Current(t.Context(), "good"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the host that left is still current in a shard that is back: %v", err)
		}
		st.down.Store(false)
		time.Sleep(3 * time.Second)
		if _, err := st.Current(t.Context(), "bad"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the host that left is still current: %v", err)
		}
	})
}

// A node that has lost the Store and the other nodes together finds that the Store
// is back as soon as one that has no others, however many do not answer it.
func TestOutage_ManyNodesDoNotAnswer(t *testing.T) {
	for _, n := range []int{1, 20} {
		for after := time.Duration(0); after < 10*time.Second; after += time.Second {
			bubble(t, func(t *testing.T) {
				inner := memory.New()
				st := storetest.NewFaulty(inner)
				s := server(t, func(c *relay.Config) {
					c.Store = st
					c.Node = relay.Node{ID: "me", URL: "http://me.test", Key: []byte("0123456789abcdef"),
						DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }}
				})
				for i := range n {
					other := store.Node{ID: fmt.Sprint("n", i), URL: fmt.Sprintf("http://n%d.test", i), Incarnation: fmt.Sprint("inc", i), StartedAt: time.Now(), Beat: 1}
					if _, err := inner.KeepNode(t.Context(), other, time.Hour); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(10 * time.Second)
				st.Set("*", storetest.Fault{Hang: true})
				time.Sleep(20*time.Second + after)
				get(s, "/health").want(t, "without a Store", 200, "degraded")
				st.Clear()
				back := time.Now()
				for strings.Contains(get(s, "/health").body, "degraded") {
					time.Sleep(50 * time.Millisecond)
				}
				if took := time.Since(back); took > 5*time.Second {
					t.Errorf("%d other nodes: found after %v, want 5 s at most", n, took)
				}
			})
		}
	}
}
