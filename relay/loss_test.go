package relay_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/relaytest"
	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/memory"
	"github.com/dialback/dialback/store/storetest"
	"github.com/dialback/dialback/transport"
)

// A node that alone has lost the Store sends its hosts to a better place, over
// 30 s; while nobody has the Store, nobody moves (fault 37).
func TestCluster_CutOffNodeLosesItsHosts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shared := memory.New()
		var faulty []*storetest.Faulty
		c := relaytest.NewCluster(t, 2, &relaytest.Options{Config: func(cfg *relay.Config) {
			f := storetest.NewFaulty(shared)
			faulty = append(faulty, f)
			cfg.Store = f
		}})
		c.Nodes[0].StartAgentOn(c.Balanced(0), "h", map[string]agent.Handler{"": text("served")}, nil)
		time.Sleep(3 * time.Second) // the nodes know each other
		down := storetest.Fault{Err: errors.New("down")}
		faulty[0].Set("*", down)
		faulty[1].Set("*", down)
		time.Sleep(100 * time.Second)
		get(c.Nodes[0], "/hosts/h/x").want(t, "nobody has the Store: the host stays", 200, "served")
		if n := c.Nodes[0].Relay.Stats().Hosts; n != 1 {
			t.Fatalf("%d hosts on the node, want 1: no host leaves because of an outage", n)
		}
		faulty[1].Clear()
		time.Sleep(time.Minute)
		get(c.Nodes[1], "/hosts/h/x").want(t, "the host has moved", 200, "served")
		if n := c.Nodes[0].Relay.Stats().Hosts; n != 0 {
			t.Errorf("%d hosts on the node that is cut off, want 0", n)
		}
	})
}

// The Store comes back empty: hosts are routable from every node within 10 s.
func TestCluster_StoreComesBackEmpty(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := relaytest.NewLossyStore()
		c := relaytest.NewCluster(t, 2, &relaytest.Options{Config: func(cfg *relay.Config) { cfg.Store = st }})
		c.Nodes[0].MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("served")})
		get(c.Nodes[1], "/hosts/h/x").want(t, "before", 200, "served")
		st.Lose()
		time.Sleep(10 * time.Second)
		get(c.Nodes[1], "/hosts/h/x").want(t, "10 s after all was lost", 200, "served")
	})
}

// Two processes with one NodeID: the newer wins, the older one closes its
// hosts with 1012 and takes no new ones.
func TestCluster_TwoProcessesWithOneNodeID(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 1, nil)
		h := c.Nodes[0].MustConnect("h", relaytest.HostConfig{})
		newer := server(t, func(cfg *relay.Config) {
			cfg.Store, cfg.Node = c.Store, relay.Node{ID: "node0", Key: []byte("0123456789abcdef")}
		})
		time.Sleep(6 * time.Second)
		wantClosed(t, h, "the older process", transport.CloseRestart)
		if _, err := c.Nodes[0].Connect("h", relaytest.HostConfig{}); handshakeStatus(err) != 503 {
			t.Errorf("a new host at the older process: %v, want 503", err)
		}
		newer.MustConnect("h", relaytest.HostConfig{})
	})
}

// A Store that loses its last writes forgets which process replaced which. The
// older one, which knows, must not take the ID back: the newer one would refuse
// all hosts from then on, and its tickets could not be handed over.
func TestCluster_SupersededStaysSuperseded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := relaytest.NewLossyStore()
		node := func() *relaytest.Server {
			return server(t, func(cfg *relay.Config) {
				cfg.Store, cfg.Node = st, relay.Node{ID: "node0", Key: []byte("0123456789abcdef")}
			})
		}
		node() // beats at 5 s, 10 s and so on
		time.Sleep(2 * time.Second)
		newer := node() // at 7 s, 12 s
		time.Sleep(4500 * time.Millisecond)
		st.Lose()
		time.Sleep(10 * time.Second)
		if _, err := newer.Connect("h", relaytest.HostConfig{}); err != nil {
			t.Errorf("a host at the newer process, after the Store has lost everything: %v", err)
		}
	})
}

// Nor may it if the Store forgets it before the older one has heard of it: who
// started later has the ID, whichever of them comes first then.
func TestCluster_OlderProcessComesBackAfterALoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := relaytest.NewLossyStore()
		node := func(own store.Store) *relaytest.Server {
			return server(t, func(cfg *relay.Config) {
				cfg.Store, cfg.Node = own, relay.Node{ID: "node0", Key: []byte("0123456789abcdef")}
			})
		}
		cutOff := storetest.NewFaulty(st)
		older := node(cutOff)
		time.Sleep(2 * time.Second)
		cutOff.Set("*", storetest.Fault{Err: errors.New("no way to the Store")})
		newer := node(st)
		time.Sleep(time.Second)
		st.Lose()
		time.Sleep(5 * time.Second) // the newer one has registered again
		cutOff.Clear()
		time.Sleep(5 * time.Second)
		if _, err := newer.Connect("h", relaytest.HostConfig{}); err != nil {
			t.Errorf("a host at the newer process, after the Store has lost everything: %v", err)
		}
		if _, err := older.Connect("h", relaytest.HostConfig{}); err == nil {
			t.Errorf("a host at the older process is taken, after the newer one has taken the ID back")
		}
	})
}

// Which process is the newer one does not hang on clocks: the one that comes and
// has never had the ID.
func TestCluster_ClockOfTheOlderProcessIsAhead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := relaytest.NewLossyStore()
		older := store.Node{ID: "node0", Incarnation: "older", StartedAt: time.Now().Add(time.Hour), Beat: 1}
		if _, err := st.KeepNode(t.Context(), older, 15*time.Second); err != nil {
			t.Fatal(err)
		}
		newer := server(t, func(cfg *relay.Config) {
			cfg.Store, cfg.Node = st, relay.Node{ID: "node0", Key: []byte("0123456789abcdef")}
		})
		newer.MustConnect("h", relaytest.HostConfig{})
		st.Lose()
		older.Beat = 2
		if _, err := st.KeepNode(t.Context(), older, 15*time.Second); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		newer.MustConnect("h2", relaytest.HostConfig{})
		if _, err := st.KeepNode(t.Context(), older, 15*time.Second); !errors.Is(err, store.ErrRetired) {
			t.Errorf("the older process renews its lease: %v, want ErrRetired", err)
		}
	})
}

// A row of a living host is kept for as long as it pings (fault 36), and what
// a dead node leaves behind is gone when its time is over.
func TestCluster_RowsLiveWithTheirHosts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 2, nil)
		c.Nodes[0].StartAgentOn(c.Balanced(0), "h", map[string]agent.Handler{"": text("served")}, nil)
		time.Sleep(15 * time.Minute) // three times the ttl
		if _, err := c.Store.Current(context.Background(), "h"); err != nil {
			t.Errorf("the row of a living host: %v", err)
		}
		get(c.Nodes[1], "/hosts/h/x").want(t, "after three times the ttl", 200, "served")
		c.Nodes[1].MustConnect("ghost", relaytest.HostConfig{})
		c.Nodes[1].Kill()
		time.Sleep(6 * time.Minute)
		if _, err := c.Store.Current(context.Background(), "ghost"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the row of a dead node's host: %v", err)
		}
	})
}

// claimForgotten connects two sockets of h to the first node, and has the Store
// name the earlier one: it has lost its last writes, and no lease with them.
func claimForgotten(t *testing.T, st *relaytest.LossyStore, c *relaytest.Cluster) {
	t.Helper()
	cfg := relaytest.HostConfig{OnDial: relaytest.AnswerText("here")}
	c.Nodes[0].MustConnect("h", cfg)
	earlier, err := st.Current(t.Context(), "h")
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	c.Nodes[0].MustConnect("h", cfg)
	nodes, err := st.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	st.Lose()
	for _, n := range nodes {
		st.KeepNode(t.Context(), n, 15*time.Second)
	}
	st.Ping(t.Context(), []store.Attachment{earlier}, 5*time.Minute)
}

// The node of a socket whose claim the Store has lost puts that right when it is
// asked for the host, by a client or by another node; it waited for the host's
// next ping, half a minute, while all requests failed.
func TestCluster_StoreNamesAnEarlierSocket(t *testing.T) {
	for client := range 2 {
		bubble(t, func(t *testing.T) {
			st := relaytest.NewLossyStore()
			c := relaytest.NewCluster(t, 2, &relaytest.Options{Config: func(c *relay.Config) { c.Store = st }})
			claimForgotten(t, st, c)
			r := get(c.Nodes[client], "/hosts/h/x")
			r.want(t, fmt.Sprintf("the host is on node 0, the client on node %d", client), 200, "here")
			r.wantWithin(t, "the host is here", time.Second)
		})
	}
}

// It answers the node that asks it in time all the same, if the Store hangs just
// then: it would be taken for dead, with all its hosts.
func TestCluster_StoreNamesAnEarlierSocketAndHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := relaytest.NewLossyStore()
		var stores []*storetest.Faulty
		c := relaytest.NewCluster(t, 2, &relaytest.Options{Config: func(cfg *relay.Config) {
			f := storetest.NewFaulty(st)
			stores, cfg.Store = append(stores, f), f
		}})
		claimForgotten(t, st, c)
		c.Nodes[0].MustConnect("other", relaytest.HostConfig{OnDial: relaytest.AnswerText("other")})
		stores[0].Set("Ping", storetest.Fault{Hang: true})
		reply := async(c.Nodes[1], "/hosts/h/x")
		time.Sleep(time.Second + time.Millisecond)
		get(c.Nodes[1], "/hosts/other/x").want(t, "another host of node 0", 200, "other")
		(<-reply).want(t, "the host itself, of which the Store still names the earlier socket", 503, "host_replaced")
		stores[0].Clear()
		get(c.Nodes[1], "/hosts/h/x").want(t, "the Store works again", 200, "here")
	})
}

// A claim that the Store loses is written again within NodeBeat of it, though
// neither a lease nor the Store itself seems to have been away.
func TestCluster_LostClaimIsWrittenAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := relaytest.NewLossyStore()
		c := relaytest.NewCluster(t, 2, &relaytest.Options{Config: func(c *relay.Config) { c.Store = st }})
		c.Nodes[0].MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("here")})
		nodes, err := st.Nodes(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		st.Lose()
		for _, n := range nodes {
			st.KeepNode(context.Background(), n, 15*time.Second)
		}
		get(c.Nodes[1], "/hosts/h/x").want(t, "the claim is lost", 503, "host_offline")
		time.Sleep(5*time.Second + 251*time.Millisecond)
		get(c.Nodes[1], "/hosts/h/x").want(t, "NodeBeat and PingBatch later", 200, "here")
	})
}

// A Store that has lost what was written in the last seconds, confirmed claims
// too, but still has an older renewal of the lease, is told at the next renewal;
// and at the one after that, for it may lose what it was told as well.
func TestCluster_LostRenewalHasTheHostsWrittenAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := relaytest.NewLossyStore()
		c := relaytest.NewCluster(t, 2, &relaytest.Options{Config: func(c *relay.Config) { c.Store = st }})
		leases := func() []store.Node {
			nodes, err := st.Nodes(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return nodes
		}
		loseAllBut := func(leases []store.Node) {
			st.Lose()
			for _, n := range leases {
				if _, err := st.KeepNode(t.Context(), n, 8*time.Second); err != nil {
					t.Fatal(err)
				}
			}
			get(c.Nodes[1], "/hosts/h/x").want(t, "the claim is lost", 503, "host_offline")
		}
		first := leases()
		c.Nodes[0].MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("here")})
		time.Sleep(7 * time.Second) // the claim has been confirmed, the leases renewed
		loseAllBut(first)
		time.Sleep(3*time.Second + 251*time.Millisecond)
		get(c.Nodes[1], "/hosts/h/x").want(t, "the next renewal and PingBatch later", 200, "here")
		loseAllBut(leases())
		time.Sleep(5 * time.Second)
		get(c.Nodes[1], "/hosts/h/x").want(t, "the one after that", 200, "here")
	})
}

// A dial-back for a node whose lease the Store has lost is not answered 404: the
// host would give the ticket up, and the client wait for it until DialTimeout.
func TestCluster_DialBackForANodeWithoutALease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := relaytest.NewLossyStore()
		c := relaytest.NewCluster(t, 2, &relaytest.Options{Config: func(c *relay.Config) { c.Store = st }})
		h := c.Nodes[0].MustConnect("h", relaytest.HostConfig{})
		reply := async(c.Nodes[0], "/hosts/h/x")
		d := nextDial(t, h)
		st.Lose()
		time.Sleep(2*time.Second + time.Millisecond) // node 1 has read the table
		if _, err := c.Nodes[1].DialBackAs("h", d); handshakeStatus(err) != 503 {
			t.Errorf("a dial-back on node 1 for node 0: %v, want 503", err)
		}
		h.Refuse(d, 502, "dial-back failed") // as a host does then
		(<-reply).want(t, "the client is told at once", 502, "dial-back failed")
	})
}

// A socket that has ended is not written again when the Store has lost its end:
// each claim is confirmed once more after NodeBeat, but not that of a dead one.
func TestCluster_EndedSocketIsNotWrittenAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := relaytest.NewLossyStore()
		c := relaytest.NewCluster(t, 2, &relaytest.Options{Config: func(c *relay.Config) { c.Store = st }})
		c.Nodes[0].MustConnect("left", relaytest.HostConfig{}).Vanish()
		c.Nodes[0].MustConnect("revoked", relaytest.HostConfig{})
		if err := c.Nodes[0].Relay.Revoke(t.Context(), "revoked", "no more"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		st.Lose()
		time.Sleep(6 * time.Second) // NodeBeat and PingBatch
		for _, h := range []string{"left", "revoked"} {
			if att, err := st.Current(t.Context(), h); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("the Store names %v of %s, %v; its socket had ended", att, h, err)
			}
			get(c.Nodes[1], "/hosts/"+h+"/x").want(t, h, 503, "host_offline")
		}
	})
}

// A Store that has lost everything names neither the host nor the node that has
// it. A revoke reaches it there all the same: for NodeLease a node that is not in
// the table any more is told.
func TestCluster_RevokeAfterALoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := relaytest.NewLossyStore()
		c := relaytest.NewCluster(t, 2, &relaytest.Options{Config: func(c *relay.Config) { c.Store = st }})
		h := c.Nodes[0].MustConnect("h", relaytest.HostConfig{})
		time.Sleep(2500 * time.Millisecond)
		st.Lose()
		time.Sleep(2 * time.Second) // node 1 has read the table, node 0 has not yet renewed its lease
		if err := c.Nodes[1].Relay.Revoke(t.Context(), "h", "stolen"); err != nil {
			t.Fatal(err)
		}
		wantClosed(t, h, "revoked", transport.CloseForbidden)
	})
}
