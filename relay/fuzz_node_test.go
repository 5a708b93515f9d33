package relay_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/internal/hostile"
	"github.com/dialback/dialback/internal/memnet"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/relaytest"
	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/transport"
	"github.com/google/uuid"
)

// What a hostile node can do, as steps of a script. In an argument $A and $G are
// the ID and the generation of the victim's attachment, $T the newest ticket
// that it was sent, $F one in the name of the other node, $I and $E the
// incarnations of the other and of the hostile node.
const (
	nodeCall     = iota // a signed call: the first byte says which, the rest is its body
	nodeForge           // the same, signed for something else
	nodeAgain           // the last signed call once more, to the other node if the argument is odd
	nodeRaw             // bytes on a connection of their own
	nodeAnswer          // what the hostile node answers to calls from now on
	nodeAsk             // a client comes for the victim or for the hostile node's host
	nodeDialBack        // the victim dials back, through either node
	nodeHop             // a dial-back for the hostile node
	nodePause           // time passes
	nodeOps
)

var nodeRoutes = []string{"dial", "outcome", "cancel", "retire", "retired", "revoke", "store", "hop", "other", ""}

const (
	victimHost = "victim" // an agent on the first node
	farHost    = "far"    // the Store says that the hostile node has it
	evilNode   = "evil-node"
)

// fuzzNode is a hostile node: it is in the Store, and has the key.
type fuzzNode struct {
	w       *fuzzWorld
	c       *relaytest.Cluster
	victim  *relaytest.Host
	gen     uint64
	id      string // of the victim's attachment
	self    string // incarnation of the hostile node
	nodes   []store.Node
	last    func(to int) // the last signed call
	clients []*fuzzClient
	peers   []*hostile.Peer
	net     memnet.Network

	mu     sync.Mutex
	ticket string
	answer []byte
	taken  []int // how much of each answer was taken, in bytes
	open   []net.Conn
}

// FuzzHostileNode: a call without the key does nothing, and one with it, or an
// answer to one, makes nothing panic, hang or grow, and hurts only the hosts that
// it names.
func FuzzHostileNode(f *testing.F) {
	for _, script := range nodeSeeds() {
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > maxScript {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			n := newFuzzNode(t)
			for _, step := range hostile.Steps(script, maxSteps) {
				n.do(step)
				synctest.Wait()
			}
			n.w.checkGood("after the script")
			n.judge()
			n.w.finish()
		})
	})
}

// A header of another node is read as far as MaxHeader.
func TestCluster_HeaderOfANodeIsBounded(t *testing.T) {
	for what, step := range map[string]hostile.Step{"a call": hostile.S(nodeAsk, "\x02"), "a hop": hostile.S(nodeHop, "\x00")} {
		bubble(t, func(t *testing.T) {
			n := newFuzzNode(t)
			n.answer = []byte("HTTP/1.1 101 Switching Protocols\r\n" + strings.Repeat("X: y\r\n", 1<<19))
			n.do(step)
			n.judge()
			if len(n.taken) == 0 || slices.Max(n.taken) > 512<<10 {
				t.Errorf("%s: %v bytes of a header of 3 MiB were taken, want some 64 KiB", what, n.taken)
			}
			n.w.finish()
		})
	}
}

func newFuzzNode(t *testing.T) *fuzzNode {
	w := &fuzzWorld{t: t}
	n := &fuzzNode{w: w, self: uuid.NewString(), answer: []byte("HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n" + `{"Result":"dialed"}  `)}
	ln, err := n.net.Listen("evil.test:80")
	if err != nil {
		t.Fatal(err)
	}
	go n.serve(ln)
	w.begin()
	n.c = relaytest.NewCluster(t, 2, &relaytest.Options{HTTP: w.listen, Config: func(c *relay.Config) {
		w.secure(c)
		elsewhere := c.Node.DialContext
		c.Node.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			switch addr {
			case "evil.test:80":
				return n.net.DialContext(ctx, network, addr)
			case "node0.test:80", "node1.test:80":
			default:
				t.Errorf("a node connects to %s, which is none", addr)
			}
			return elsewhere(ctx, network, addr)
		}
	}})
	w.use(n.c.Nodes[0])
	w.atEnd(func() {
		ln.Close()
		n.cut()
		n.c.Nodes[1].Close()
	})
	n.join(t)
	n.victim = w.s.MustConnect(victimHost, relaytest.HostConfig{Proto: 3, Token: hostToken(victimHost), OnDial: n.onDial})
	att, err := n.c.Store.Current(t.Context(), victimHost)
	if err != nil {
		t.Fatal(err)
	}
	n.id, n.gen = att.ID, att.Generation
	if n.nodes, err = n.c.Store.Nodes(t.Context()); err != nil || len(n.nodes) != 3 {
		t.Fatalf("%d nodes, %v", len(n.nodes), err)
	}
	time.Sleep(3 * time.Second) // the nodes read their tables
	return n
}

// join puts the hostile node into the Store, and its host.
func (n *fuzzNode) join(t *testing.T) {
	ctx := t.Context()
	if _, err := n.c.Store.KeepNode(ctx, store.Node{ID: evilNode, URL: "http://evil.test", Incarnation: n.self, StartedAt: time.Now()}, time.Hour); err != nil {
		t.Fatal(err)
	}
	_, err := n.c.Store.Claim(ctx, store.Attachment{
		ID: uuid.NewString(), HostID: farHost, NodeID: evilNode, Incarnation: n.self, Role: store.RoleHost, Proto: 3, ConnectedAt: time.Now(),
	}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
}

// serve answers whatever comes with the answer of the script.
func (n *fuzzNode) serve(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		n.mu.Lock()
		n.open = append(n.open, c)
		n.mu.Unlock()
		go n.converse(c)
	}
}

func (n *fuzzNode) converse(c net.Conn) {
	br := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		io.Copy(io.Discard, r.Body)
		n.mu.Lock()
		answer := n.answer
		n.mu.Unlock()
		taken, _ := c.Write(answer)
		n.mu.Lock()
		n.taken = append(n.taken, taken)
		n.mu.Unlock()
	}
}

func (n *fuzzNode) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.open {
		c.Close()
	}
}

func (n *fuzzNode) onDial(_ *relaytest.Host, d transport.StreamDial) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ticket = d.Ticket
	n.w.secret(d.Ticket)
}

// node is the row of one of the two good nodes.
func (n *fuzzNode) node(i int) store.Node {
	for _, row := range n.nodes {
		if row.ID == "node"+strconv.Itoa(i%2) {
			return row
		}
	}
	panic("relay_test: no such node")
}

func (n *fuzzNode) do(step hostile.Step) {
	n.mu.Lock()
	arg := step.Fill(map[string]string{
		"$A": n.id, "$G": strconv.FormatUint(n.gen, 10), "$T": n.ticket, "$I": n.node(1).Incarnation, "$E": n.self,
		"$F": n.w.s.Relay.ForgeTicket("node1", victimHost),
	})
	ticket := n.ticket
	n.mu.Unlock()
	n.w.said(arg)
	switch step.Op % nodeOps {
	case nodeCall, nodeForge:
		n.call(step.Op%nodeOps == nodeForge, arg)
	case nodeAgain:
		if n.last != nil {
			n.last(int(step.First()))
		}
	case nodeRaw:
		n.raw(arg)
	case nodeAnswer:
		n.mu.Lock()
		n.answer = arg
		n.mu.Unlock()
	case nodeAsk:
		n.ask(step.First())
	case nodeDialBack:
		n.dialBack(int(step.First()), url.Values{"hostId": {victimHost}, "ticket": {ticket}})
	case nodeHop:
		n.dialBack(int(step.First()), url.Values{"hostId": {farHost}, "ticket": {n.w.s.Relay.ForgeTicket(evilNode, farHost)}})
	case nodePause:
		time.Sleep(step.Pause())
	}
}

// call makes a call to the first node.
func (n *fuzzNode) call(forged bool, arg []byte) {
	if len(arg) == 0 {
		return
	}
	uri := "/node/" + nodeRoutes[int(arg[0])%len(nodeRoutes)]
	method, body := http.MethodPost, arg[1:]
	if uri == "/node/hop" {
		method, uri, body = http.MethodGet, uri+"?via="+url.PathEscape(string(body)), nil
	}
	signedFor := n.node(0)
	mac := relay.NodeMAC(n.w.s.Relay, method, signedFor.ID, signedFor.Incarnation, uri, body)
	if forged {
		switch arg[0] % 4 {
		case 0:
			mac = relay.NodeMAC(n.w.s.Relay, method, signedFor.ID, n.self, uri, body)
		case 1:
			mac = relay.NodeMAC(n.w.s.Relay, method, signedFor.ID, signedFor.Incarnation, uri, append([]byte("x"), body...))
		case 2:
			mac = mac[:len(mac)-1]
		case 3:
			mac = ""
		}
	}
	send := func(to int) {
		s := n.c.Nodes[to%2]
		req, err := http.NewRequest(method, s.URL+uri, strings.NewReader(string(body)))
		if err != nil {
			return
		}
		req.Header.Set("Dialback-Node", mac)
		start := time.Now()
		resp, _, err := s.DoRequest(req)
		if took := time.Since(start); err != nil || took > 5*time.Second {
			n.w.t.Errorf("%s: %v after %v", uri, err, took)
			return
		}
		if forged || to%2 == 1 {
			if resp.StatusCode != http.StatusUnauthorized {
				n.w.t.Errorf("%s without the right MAC was answered %d", uri, resp.StatusCode)
			}
		} else if resp.StatusCode == http.StatusUnauthorized {
			n.w.t.Errorf("%s with the right MAC was answered 401", uri)
		}
	}
	if !forged {
		n.last = send
	}
	send(0)
}

// raw sends bytes that need not be a request.
func (n *fuzzNode) raw(b []byte) {
	c, err := n.w.s.Transport().DialContext(n.w.t.Context(), "tcp", "node0.test:80")
	if err != nil {
		n.w.t.Fatal(err)
	}
	n.mu.Lock()
	n.open = append(n.open, c)
	n.mu.Unlock()
	c.SetWriteDeadline(time.Now().Add(time.Second))
	c.Write(b)
}

// ask has a client come to either node, for the victim or for the far host.
func (n *fuzzNode) ask(what byte) {
	if len(n.clients) >= 8 {
		return
	}
	host := []string{victimHost, farHost}[what>>1&1]
	line := "GET /hosts/" + host + "/x"
	n.clients = append(n.clients, n.w.askAt(n.c.Nodes[what&1], line, line+" HTTP/1.1\r\nHost: x\r\nDialback-Authorization: "+clientToken(host)+"\r\n", ""))
}

// dialBack brings a ticket to either node, and answers what is asked.
func (n *fuzzNode) dialBack(at int, q url.Values) {
	if len(n.peers) >= 8 {
		return
	}
	s := n.c.Nodes[at%2]
	conn, err := s.Transport().DialContext(n.w.t.Context(), "tcp", fmt.Sprintf("node%d.test:80", at%2))
	if err != nil {
		n.w.t.Fatal(err)
	}
	start := time.Now()
	p, resp, err := hostile.Dial(conn, "GET /v2/dial?"+q.Encode()+" HTTP/1.1\r\n"+hostile.Handshake, nil)
	if took := time.Since(start); took > 5*time.Second || err != nil && resp == nil {
		n.w.t.Errorf("a dial-back was answered %v, %v after %v", resp, err, took)
	}
	if p == nil {
		return
	}
	n.peers = append(n.peers, p)
	p.Send(hostile.Text, transport.Encode(transport.Opened{}))
	p.Send(hostile.Binary, []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
}

// judge gives everything its time, and looks at what is left.
func (n *fuzzNode) judge() {
	time.Sleep(80 * time.Second)
	for _, c := range n.clients {
		if err := c.check(); err != nil {
			n.w.t.Errorf("%s: %v", c.what, err)
		}
		c.leave()
	}
	n.cut()
	time.Sleep(2 * time.Minute)
	n.w.settled("when the clients have left")
	if st := n.c.Nodes[1].Relay.Stats(); st.Streams != 0 || st.PendingDials != 0 {
		n.w.t.Errorf("on the other node %d streams and %d pending dials are left", st.Streams, st.PendingDials)
	}
	for _, p := range n.peers {
		p.Close()
	}
	n.w.checkGood("when all is over")
}

// nodeSeeds are calls as nodes make them, and others.
func nodeSeeds() [][]byte {
	S, script := hostile.S, hostile.Script
	const (
		dial, outcome, cancel, retire, retired, revoke, storeCall, hop = "\x00", "\x01", "\x02", "\x03", "\x04", "\x05", "\x06", "\x07"
		victim0, victim1, far0, far1                                   = "\x00", "\x01", "\x02", "\x03"
		twoSeconds                                                     = "\x04"
	)
	const okHead = "HTTP/1.1 200 OK\r\nContent-Length: "
	return [][]byte{
		script(S(nodeAsk, victim0), S(nodeDialBack, "\x00"), S(nodeAsk, victim1), S(nodeDialBack, "\x00"), S(nodeAsk, victim1), S(nodeDialBack, "\x01")),
		script(S(nodeCall, dial+`{"HostID":"victim","ID":"$A","Generation":$G,"Ticket":"$F","Kind":"tcp","Proto":"http","Waiting":"$I"}`), S(nodeAgain, "\x00"), S(nodeAgain, "\x01"), S(nodeCall, cancel+`{"HostID":"victim","Ticket":"$F"}`)),
		script(S(nodeCall, dial+`{"HostID":"victim","ID":"$A","Generation":1,"Ticket":"","Kind":"spare","Waiting":"$E"}`), S(nodeCall, dial+`{"HostID":"victim","ID":"x","Generation":99999999999999999}`)),
		script(S(nodeAsk, victim0), S(nodeCall, outcome+`{"Outcomes":[{"HostID":"victim","Ticket":"$T","Result":"refused","Status":200,"Reason":"a\nb"}]}`)),
		script(S(nodeAsk, victim0), S(nodeCall, outcome+`{"Outcomes":[{"HostID":"victim","Ticket":"$T","Result":"retired"},{"Ticket":"$T","Result":"gone"}]}`), S(nodeAgain, "\x00")),
		script(S(nodeAsk, victim0), S(nodeCall, cancel+`{"HostID":"victim","Ticket":"$T"}`), S(nodePause, twoSeconds)),
		script(S(nodeCall, retire+`{"HostID":"victim","ID":"$A","Generation":$G}`), S(nodeAsk, victim0)),
		script(S(nodeAsk, victim0), S(nodeCall, retired+`{"HostID":"victim","Generation":18446744073709551615}`), S(nodeAgain, "")),
		script(S(nodeAsk, victim0), S(nodeCall, revoke+`{"HostID":"victim","Reason":"`+strings.Repeat("é", 70)+`"}`)),
		script(S(nodeCall, storeCall), S(nodeCall, storeCall+"null"), S(nodeCall, "\x08{}"), S(nodeCall, dial+"[]"), S(nodeCall, outcome+`{"Outcomes":null}`), S(nodeCall, dial+`{"`)),
		script(S(nodeForge, dial+`{}`), S(nodeForge, "\x01{}"), S(nodeForge, "\x02{}"), S(nodeForge, "\x0b{}")),
		script(S(nodeCall, hop+"x&hostId=victim&ticket=$T"), S(nodeAsk, victim0), S(nodeCall, hop+"&hostId=victim&ticket=$T")),
		script(S(nodeRaw, "POST /node/dial HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n{"), S(nodePause, twoSeconds)),
		script(S(nodeRaw, "POST /node/../node/dial HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n")),
		// Answers to the calls of others.
		script(S(nodeAsk, far0), S(nodePause, twoSeconds)),
		script(S(nodeAnswer, okHead+`21`+"\r\n\r\n"+`{"Result":"not-mine"}`), S(nodeAsk, far0), S(nodeAsk, far1)),
		script(S(nodeAnswer, okHead+`20`+"\r\n\r\n"+`{"Result":"retired"}`), S(nodeAsk, far0)),
		script(S(nodeAnswer, okHead+"2\r\n\r\n[]"), S(nodeAsk, far0), S(nodeAnswer, "HTTP/1.1 401 No\r\n\r\n"), S(nodeAsk, far1)),
		script(S(nodeAnswer, okHead+"99999999\r\n\r\n{"), S(nodeAsk, far0), S(nodeAnswer, ""), S(nodeAsk, far1)),
		script(S(nodeAnswer, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n"), S(nodeAsk, far0)),
		script(S(nodeAnswer, "HTTP/1.1 307 Over There\r\nLocation: http://elsewhere.test/x\r\nContent-Length: 0\r\n\r\n"), S(nodeAsk, far0), S(nodeHop, "\x00")),
		script(S(nodeAnswer, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"), S(nodeAsk, far0), S(nodeAsk, far1)),
		// What a hop brings back.
		script(S(nodeAnswer, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-Y: z\r\n\r\n\x81\x02hi"), S(nodeHop, "\x00"), S(nodeHop, "\x01")),
		script(S(nodeAnswer, "HTTP/1.1 101\r\n\r\n"), S(nodeHop, "\x00"), S(nodeAnswer, okHead+"2\r\n\r\nok"), S(nodeHop, "\x00"), S(nodeAnswer, "garbage"), S(nodeHop, "\x01"), S(nodeAnswer, ""), S(nodeHop, "\x01")),
	}
}
