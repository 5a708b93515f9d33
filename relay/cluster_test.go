package relay_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/relaytest"
	"github.com/dialback/dialback/store/memory"
	"github.com/dialback/dialback/store/storetest"
	"github.com/dialback/dialback/transport"
)

// Host on one node, client on another, dial-back on a third: nobody notices
// (fault 33).
func TestCluster_AnyNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 3, nil)
		for i := range 3 {
			// The control socket goes to node i, the dial-backs anywhere.
			c.Nodes[i].StartAgentOn(c.Balanced(i), fmt.Sprint("h", i), map[string]agent.Handler{"": text(fmt.Sprint("host ", i)), "echo": echo()}, nil)
		}
		for round := range 3 {
			for _, n := range c.Nodes {
				for i := range 3 {
					r := get(n, fmt.Sprintf("/hosts/h%d/x", i))
					r.want(t, fmt.Sprintf("round %d", round), 200, fmt.Sprint("host ", i))
				}
			}
		}
		for _, n := range c.Nodes {
			for i := range 3 {
				conn, err := n.DialWS(context.Background(), fmt.Sprintf("/connect/h%d?service=echo", i), nil)
				if err != nil {
					t.Fatal(err)
				}
				s := transport.NewStreamConn(conn)
				go func() { io.WriteString(s, strings.Repeat("x", 1<<20)); s.CloseWrite() }()
				if b, err := io.ReadAll(s); len(b) != 1<<20 || err != nil {
					t.Errorf("echo of 1 MiB: %d bytes, %v", len(b), err)
				}
			}
			if p, err := n.Relay.Presence(context.Background(), "h0", "h1", "h2"); err != nil || !p["h0"].Online || !p["h1"].Online || !p["h2"].Online {
				t.Errorf("presence: %+v %v", p, err)
			}
			settled(t, n, "afterwards")
		}
		hops := uint64(0)
		for _, n := range c.Nodes {
			hops += n.Relay.Stats().Hops
		}
		if hops == 0 {
			t.Error("no dial-back landed elsewhere: the test tests nothing")
		}
	})
}

// A v2 host on node 0 whose dial-back lands on each node.
func TestCluster_V2DialBackAnywhere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 3, nil)
		h := c.Nodes[0].MustConnect("h", relaytest.HostConfig{})
		for i, client := range c.Nodes {
			for j, landing := range c.Nodes {
				reply := async(client, fmt.Sprintf("/hosts/h/%d%d", i, j))
				d := nextDial(t, h)
				conn, err := landing.DialBackAs("h", d)
				if err != nil {
					t.Fatalf("client on %d, dial-back on %d: %v", i, j, err)
				}
				req, _, err := relaytest.ReadHTTPRequest(conn)
				if err != nil {
					t.Fatal(err)
				}
				conn.Write(transport.Text, transport.Encode(transport.HTTPResponse{Status: 200}))
				conn.Write(transport.Binary, []byte(req.Path))
				conn.Write(transport.Text, transport.Encode(transport.HTTPEnd{}))
				(<-reply).want(t, "the answer", 200, fmt.Sprintf("/%d%d", i, j))
				closeOf(conn)
			}
		}
	})
}

// Report A across nodes: the predecessor is frozen on node 0, the successor on
// node 1, and clients are everywhere.
func TestCluster_ReplacedOnAnotherNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 3, nil)
		old := c.Nodes[0].MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("old")})
		for _, n := range c.Nodes {
			get(n, "/hosts/h/x").want(t, "before", 200, "old")
		}
		old.Freeze()
		c.Nodes[1].MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("new")})
		for range 10 {
			for _, n := range c.Nodes {
				r := get(n, "/hosts/h/x")
				r.want(t, "after the replacement", 200, "new")
				r.wantWithin(t, "after the replacement", 10*time.Millisecond)
			}
		}
		old.Thaw()
		synctest.Wait()
		if n := relaytest.Count[transport.StreamDial](old); n != 3 {
			t.Errorf("the replaced socket got %d dials, want the 3 from before", n)
		}
	})
}

// The node of the replaced socket closes it at once, with 4409.
func TestCluster_ReplacedSocketIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 2, nil)
		old := c.Nodes[0].MustConnect("h", relaytest.HostConfig{})
		c.Nodes[1].MustConnect("h", relaytest.HostConfig{})
		start := time.Now()
		wantClosed(t, old, "replaced on another node", transport.CloseReplaced)
		if d := time.Since(start); d > time.Second {
			t.Errorf("closed after %v", d)
		}
	})
}

// A dial that waits on another node's socket is issued anew when the host is
// replaced, refused with the host's reason, and cancelled when the client leaves.
func TestCluster_OutcomesCross(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 3, nil)
		h := c.Nodes[0].MustConnect("h", relaytest.HostConfig{Proto: 3})

		reply := async(c.Nodes[1], "/hosts/h/x")
		h.Refuse(nextDial(t, h), 403, "not today")
		r := <-reply
		r.want(t, "refused on another node", 403, "not today")
		r.wantWithin(t, "refused on another node", 0)

		conn, err := c.Nodes[1].DialWS(context.Background(), "/connect/h", nil)
		if err != nil {
			t.Fatal(err)
		}
		nextDial(t, h)
		conn.CloseNow()
		synctest.Wait()
		if n := relaytest.Count[transport.Cancel](h); n != 1 {
			t.Errorf("%d stream:cancel after the client left, want 1", n)
		}

		reply = async(c.Nodes[1], "/hosts/h/x")
		nextDial(t, h)
		v2 := c.Nodes[2].MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("new")})
		r = <-reply
		r.want(t, "replaced while it was dialed", 200, "new")
		r.wantWithin(t, "replaced while it was dialed", 300*time.Millisecond)

		reply = async(c.Nodes[1], "/hosts/h/x")
		synctest.Wait()
		(<-reply).want(t, "once more", 200, "new")
		v2.Vanish()
		synctest.Wait()
		time.Sleep(500 * time.Millisecond)
		r = get(c.Nodes[1], "/hosts/h/x")
		r.want(t, "the host left another node 0.5 s ago", 503, "host_offline")
		if r.took != 1500*time.Millisecond {
			t.Errorf("waited %v for a host that left another node 0.5 s ago, want the remaining 1.5 s", r.took)
		}
		get(c.Nodes[1], "/hosts/h/x").wantWithin(t, "it left long ago", 0)
	})
}

// An agent that has moved refuses a dial on its older socket; that is no answer
// to the client, even if the news of the move is still on its way.
func TestCluster_RefusalOfAnOldSocketIsNoAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 2, nil)
		const instance = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
		old := c.Nodes[0].MustConnect("h", relaytest.HostConfig{Proto: 3, Instance: instance, Seq: 1})
		conn := make(chan transport.Conn, 1)
		go func() {
			c, _ := c.Nodes[0].DialWS(context.Background(), "/connect/h", nil)
			conn <- c
		}()
		d := nextDial(t, old)
		// Another node claims, and says nothing: the refusal is the first news.
		quiet := server(t, func(cfg *relay.Config) { cfg.Store = c.Store })
		quiet.MustConnect("h", relaytest.HostConfig{Proto: 3, Instance: instance, Seq: 2})
		old.Refuse(d, 503, "dial of another generation")
		ce := closeOf(<-conn)
		if ce.Code == transport.CloseRefused {
			t.Errorf("the client was told of the refusal: %d %q", ce.Code, ce.Reason)
		}
	})
}

// A node is killed: its hosts are looked for elsewhere at the first refused
// call, and served as soon as they are back (faults 34 and 35).
func TestCluster_NodeKilled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 3, nil)
		c.Nodes[0].StartAgentOn(c.Balanced(0), "h", map[string]agent.Handler{"": text("served")}, nil)
		c.Nodes[0].MustConnect("ghost", relaytest.HostConfig{OnDial: relaytest.AnswerText("ghost")})
		get(c.Nodes[1], "/hosts/h/x").want(t, "before", 200, "served")
		get(c.Nodes[1], "/hosts/ghost/x").want(t, "before", 200, "ghost")
		c.Nodes[0].Kill()
		calls := []<-chan reply{async(c.Nodes[1], "/hosts/h/x")}
		synctest.Wait() // it has been refused: the node is known to be dead
		calls = append(calls, async(c.Nodes[1], "/hosts/h/x"))
		for _, call := range calls {
			r := <-call
			r.want(t, "right after the kill", 200, "served")
			r.wantWithin(t, "right after the kill", 3*time.Second)
		}
		var r reply
		for range 3 {
			r = get(c.Nodes[1], "/hosts/ghost/x")
			if r.status != 503 {
				t.Errorf("a host that does not come back: %d %s", r.status, r.body)
			}
			r.wantWithin(t, "a host that does not come back", 3*time.Second)
		}
		time.Sleep(18 * time.Second) // the lease, and the table
		r = get(c.Nodes[1], "/hosts/ghost/x")
		r.want(t, "after the lease", 503, "host_offline")
		r.wantWithin(t, "after the lease", 0)
		if nodes, _ := c.Store.Nodes(context.Background()); len(nodes) != 2 {
			t.Errorf("%d nodes are left, want 2", len(nodes))
		}
	})
}

// A node is killed, and another one has its address: that one knows nothing of
// the node's hosts, and they are looked for elsewhere as after a refused call.
func TestCluster_AddressOfADeadNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var moved atomic.Bool
		c := relaytest.NewCluster(t, 3, &relaytest.Options{Config: func(cfg *relay.Config) {
			dial := cfg.Node.DialContext
			cfg.Node.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if moved.Load() && addr == "node0.test:80" {
					addr = "node2.test:80"
				}
				return dial(ctx, network, addr)
			}
			if cfg.Node.ID == "node2" {
				cfg.Node.URL = "http://node0.test:80"
			}
		}})
		c.Nodes[0].MustConnect("h", relaytest.HostConfig{})
		c.Nodes[0].Kill()
		moved.Store(true)
		reply := async(c.Nodes[1], "/hosts/h/x")
		time.Sleep(time.Second)
		c.Nodes[2].MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("back")})
		(<-reply).want(t, "the host is back within ReconnectGrace", 200, "back")
	})
}

// A node is stopped and its TCP lives: calls to it fail within NodeTimeout.
func TestCluster_NodeStopped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 2, nil)
		c.Nodes[0].MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("x")})
		get(c.Nodes[1], "/hosts/h/x").want(t, "before", 200, "x")
		c.Nodes[0].Freeze()
		r := get(c.Nodes[1], "/hosts/h/x")
		r.want(t, "its node does not answer", 503, "node_unreachable")
		r.wantWithin(t, "its node does not answer", time.Second)
	})
}

// The Store names a socket a moment before its node has put it in place: the
// node is asked again.
func TestCluster_HostThatIsAttaching(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, faulty := faultyCluster(t, 2, memory.New())
		time.Sleep(3 * time.Second) // the nodes know each other
		faulty[0].Set("Claim", storetest.Fault{Delay: 400 * time.Millisecond, After: true, Times: 1})
		go c.Nodes[0].Connect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("served")})
		time.Sleep(50 * time.Millisecond)
		r := get(c.Nodes[1], "/hosts/h/x")
		r.want(t, "a host that is attaching to another node", 200, "served")
		r.wantWithin(t, "a host that is attaching to another node", 600*time.Millisecond)
	})
}

// A node drains through which kept streams of others pass: no call fails, and
// the drain does not wait for streams that are used again and again.
func TestCluster_DrainOfANodeThatStreamsPass(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 2, nil)
		// The control socket goes to node 1, the first dial-back to node 0.
		c.Nodes[1].StartAgentOn(c.Balanced(1), "h", handler(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }), nil)
		do(c.Nodes[1], "POST", "/hosts/h/x", "before").want(t, "before", 200, "before")
		if c.Nodes[0].Relay.Stats().Hops == 0 {
			t.Fatal("no dial-back passes node 0: the test tests nothing")
		}
		start := time.Now()
		drained := make(chan error, 1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		go func() { drained <- c.Nodes[0].Relay.Shutdown(ctx) }()
		for {
			do(c.Nodes[1], "POST", "/hosts/h/x", "hello").want(t, fmt.Sprint(time.Since(start), " after the drain began"), 200, "hello")
			select {
			case err := <-drained:
				if d := time.Since(start); err != nil || d > 15*time.Second {
					t.Errorf("the drain took %v: %v", d, err)
				}
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
}

// Revoke reaches sockets and streams on every node (fault 40).
func TestCluster_Revoke(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 3, nil)
		h := c.Nodes[0].MustConnect("h", relaytest.HostConfig{Proto: 3})
		conn, err := c.Nodes[1].DialWS(context.Background(), "/connect/h", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Open(nextDial(t, h)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := c.Nodes[2].Relay.Revoke(context.Background(), "h", "stolen"); err != nil {
			t.Fatal(err)
		}
		wantClosed(t, h, "revoked through another node", transport.CloseForbidden)
		wantEnd(t, conn, "a stream on a third node", transport.CloseForbidden, "revoked")
	})
}

// Only nodes with the key may call /node/.
func TestCluster_NodeCallsAreAuthenticated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 1, nil)
		for _, p := range []string{"dial", "outcome", "cancel", "retire", "retired", "revoke", "store", "hop", "x"} {
			do(c.Nodes[0], "POST", "/node/"+p, `{"HostID":"h"}`).want(t, p, 401, "")
			get(c.Nodes[0], "/node/"+p).want(t, p, 401, "")
		}
	})
}

// The MAC of a node call binds everything that the call says, and whom it is
// for: no call can be made of another one.
func TestCluster_NodeMACBindsTheCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 1, nil)
		mac := func(method, node, incarnation, uri, body string) string {
			return relay.NodeMAC(c.Nodes[0].Relay, method, node, incarnation, uri, []byte(body))
		}
		seen := map[string]string{}
		for what, m := range map[string]string{
			"the call":            mac("POST", "a", "i", "/node/dial", "x"),
			"another method":      mac("GET", "a", "i", "/node/dial", "x"),
			"another node":        mac("POST", "b", "i", "/node/dial", "x"),
			"another incarnation": mac("POST", "a", "j", "/node/dial", "x"),
			"another URI":         mac("POST", "a", "i", "/node/dial?y", "x"),
			"another body":        mac("POST", "a", "i", "/node/dial", "y"),
			"shifted":             mac("POST", "ai", "", "/node/dial", "x"),
		} {
			if other, ok := seen[m]; ok {
				t.Errorf("%s and %s have one MAC", what, other)
			}
			seen[m] = what
		}
	})
}

// A host has left, and is back between the two questions that another node asks
// the Store: who is current, and how long ago it left. The answer to the second
// one, that nothing has left, is not that it is offline.
func TestCluster_HostIsBackBetweenTwoReads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var slow *storetest.Faulty
		c := relaytest.NewCluster(t, 2, &relaytest.Options{Config: func(cfg *relay.Config) {
			slow = storetest.NewFaulty(cfg.Store) // of the last node
			cfg.Store = slow
		}})
		h := c.Nodes[0].MustConnect("h", relaytest.HostConfig{})
		h.Vanish()
		synctest.Wait()
		slow.Set("LastSeen", storetest.Fault{Delay: 100 * time.Millisecond, Times: 1})
		reply := async(c.Nodes[1], "/hosts/h/x")
		synctest.Wait()
		c.Nodes[0].MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("back")})
		r := <-reply
		r.want(t, "it is back", 200, "back")
		r.wantWithin(t, "it is back", time.Second)
	})
}

// A node that asks a Store that hangs is late, and not dead: a dial-back that
// passes to it is not given up.
func TestCluster_DialBackToANodeThatWaitsForTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, stores := faultyCluster(t, 2, memory.New())
		h := c.Nodes[0].MustConnect("h", relaytest.HostConfig{})
		reply := async(c.Nodes[0], "/hosts/h/x")
		d := nextDial(t, h)
		stores[0].Set("Current", storetest.Fault{Hang: true})
		conn, err := c.Nodes[1].DialBackAs("h", d)
		if err != nil {
			t.Fatalf("by way of node 1, while the Store hangs for node 0: %v", err)
		}
		answerEmpty(conn)
		(<-reply).want(t, "the Store hangs for node 0", 204, "")
	})
}

// A host that gives a dial-back up while it is passed on says nothing of the node
// that it was for: the hosts of that node stay within reach.
func TestCluster_DialBackThatIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 2, &relaytest.Options{Config: func(cfg *relay.Config) {
			dial := cfg.Node.DialContext
			cfg.Node.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				select {
				case <-time.After(100 * time.Millisecond): // the other node is far
				case <-ctx.Done():
					return nil, ctx.Err()
				}
				return dial(ctx, network, addr)
			}
		}})
		h := c.Nodes[0].MustConnect("h", relaytest.HostConfig{})
		c.Nodes[0].MustConnect("other", relaytest.HostConfig{OnDial: relaytest.AnswerText("other")})
		async(c.Nodes[0], "/hosts/h/x")
		d := nextDial(t, h)
		conn, err := c.Nodes[1].Transport().DialContext(t.Context(), "tcp", strings.TrimPrefix(c.Nodes[1].URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET /v2/dial?hostId=h&ticket=%s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", d.Ticket)
		time.Sleep(50 * time.Millisecond)
		conn.Close()
		get(c.Nodes[1], "/hosts/other/x").want(t, "a host of node 0", 200, "other")
		h.Refuse(d, 502, "dial-back failed")
	})
}
