package relay_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
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
		c, faulty := faultyCluster(t, 2, memory.New())
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

// leases lists what nodes have.
func leases(t *testing.T, st store.Store) []store.Node {
	t.Helper()
	nodes, err := st.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return nodes
}

// loseAllBut has the Store lose everything but these leases, which have left to
// live.
func loseAllBut(t *testing.T, st *relaytest.LossyStore, leases []store.Node, left time.Duration) {
	t.Helper()
	st.Lose()
	for _, n := range leases {
		if _, err := st.KeepNode(t.Context(), n, left); err != nil {
			t.Fatal(err)
		}
	}
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
	loseAllBut(t, st, leases(t, st), 15*time.Second)
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
		c, stores := faultyCluster(t, 2, st)
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
		loseAllBut(t, st, leases(t, st), 15*time.Second)
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
		lose := func(kept []store.Node) {
			loseAllBut(t, st, kept, 8*time.Second)
			get(c.Nodes[1], "/hosts/h/x").want(t, "the claim is lost", 503, "host_offline")
		}
		first := leases(t, st)
		c.Nodes[0].MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("here")})
		time.Sleep(7 * time.Second) // the claim has been confirmed, the leases renewed
		lose(first)
		time.Sleep(3*time.Second + 251*time.Millisecond)
		get(c.Nodes[1], "/hosts/h/x").want(t, "the next renewal and PingBatch later", 200, "here")
		lose(leases(t, st))
		time.Sleep(5 * time.Second)
		get(c.Nodes[1], "/hosts/h/x").want(t, "the one after that", 200, "here")
	})
}

// A dial-back for a node whose lease the Store has lost, and the host's row with
// it, is passed on: the node was in the table until lately, and it has the socket.
func TestCluster_DialBackForANodeWithoutALease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := relaytest.NewLossyStore()
		c := relaytest.NewCluster(t, 2, &relaytest.Options{Config: func(c *relay.Config) { c.Store = st }})
		h := c.Nodes[0].MustConnect("h", relaytest.HostConfig{})
		time.Sleep(2 * time.Second) // node 1 has read the table
		reply := async(c.Nodes[0], "/hosts/h/x")
		d := nextDial(t, h)
		st.Lose()
		time.Sleep(2*time.Second + time.Millisecond) // and again
		conn, err := c.Nodes[1].DialBackAs("h", d)
		if err != nil {
			t.Fatalf("a dial-back on node 1 for node 0: %v", err)
		}
		answerEmpty(conn)
		(<-reply).want(t, "by way of node 1", 204, "")
	})
}

// One for a node that is not known at all is not answered 404: the host would
// give the ticket up, and the client wait for it until DialTimeout.
func TestCluster_DialBackForAnUnknownNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 2, &relaytest.Options{Config: func(cfg *relay.Config) {
			if cfg.Node.ID == "node1" {
				f := storetest.NewFaulty(cfg.Store)
				f.Set("Nodes", storetest.Fault{Err: errors.New("not yet")})
				cfg.Store = f
			}
		}})
		h := c.Nodes[0].MustConnect("h", relaytest.HostConfig{})
		reply := async(c.Nodes[0], "/hosts/h/x")
		d := nextDial(t, h)
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

// A node that was looked for in vain is there again as soon as the table says so.
func TestCluster_NodeIsBackInTheTable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := relaytest.NewLossyStore()
		c := relaytest.NewCluster(t, 2, &relaytest.Options{Config: func(c *relay.Config) { c.Store = st }})
		c.Nodes[0].MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("here")})
		bogus := store.Attachment{ID: "x", HostID: "bogus", NodeID: "nobody", Incarnation: "nobody", Role: store.RoleHost}
		if _, err := st.Claim(t.Context(), bogus, 5*time.Minute); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5500 * time.Millisecond)
		h, err := st.Current(t.Context(), "h")
		if err != nil {
			t.Fatal(err)
		}
		st.DropNode(t.Context(), h.NodeID, h.Incarnation)
		time.Sleep(4400 * time.Millisecond)
		get(c.Nodes[1], "/hosts/h/x").want(t, "the node has no lease", 503, "host_offline")
		time.Sleep(600 * time.Millisecond)                                           // it has renewed it
		get(c.Nodes[1], "/hosts/bogus/x").want(t, "a row of nobody", 503, "offline") // has the table read
		get(c.Nodes[1], "/hosts/h/x").want(t, "the node is in the table", 200, "here")
	})
}

// A node that has refused a call is not called for a while, but a revoke may not
// be missed.
func TestCluster_RevokeReachesANodeThatRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var refuse atomic.Bool
		c := relaytest.NewCluster(t, 2, &relaytest.Options{Config: func(cfg *relay.Config) {
			dial := cfg.Node.DialContext
			cfg.Node.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if refuse.Load() {
					return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
				}
				return dial(ctx, network, addr)
			}
		}})
		h := c.Nodes[0].MustConnect("h", relaytest.HostConfig{})
		time.Sleep(2 * time.Second)
		refuse.Store(true)
		async(c.Nodes[1], "/hosts/h/x")
		synctest.Wait() // it has been refused
		refuse.Store(false)
		if err := c.Nodes[1].Relay.Revoke(t.Context(), "h", "stolen"); err != nil {
			t.Fatal(err)
		}
		wantClosed(t, h, "revoked", transport.CloseForbidden)
	})
}

// A Store that has lost a claim may give its generation out again, if its clock is
// behind, or stands, as here. No stream or spare of the first process serves for
// the second one.
func TestCluster_GenerationIsGivenOutTwice(t *testing.T) {
	for client := range 2 {
		bubble(t, func(t *testing.T) {
			st := relaytest.NewLossyStore()
			c := relaytest.NewCluster(t, 2, &relaytest.Options{Config: func(c *relay.Config) { c.Store = st }})
			start := func(name string) uint64 {
				services := map[string]agent.Handler{"": text(name), "spare": echo()}
				c.Nodes[0].StartAgent("h", services, nil)
				synctest.Wait()
				att, err := st.Current(t.Context(), "h")
				if err != nil {
					t.Fatal(err)
				}
				return att.Generation
			}
			first := start("first")
			get(c.Nodes[client], "/hosts/h/x").want(t, "there is one process", 200, "first")
			synctest.Wait() // for the spare that it has asked for
			st.Lose()
			if second := start("second"); second != first {
				t.Fatalf("generations %d and %d: this test is about one that is given out twice", first, second)
			}
			get(c.Nodes[client], "/hosts/h/x").want(t, "there is another one", 200, "second")
			get(c.Nodes[client], "/hosts/h/x").want(t, "there is another one", 200, "second")
		})
	}
}
