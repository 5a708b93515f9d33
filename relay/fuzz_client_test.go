package relay_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/internal/hostile"
	"github.com/dialback/dialback/internal/memnet"
	"github.com/dialback/dialback/relaytest"
	"github.com/dialback/dialback/transport"
)

// What a hostile client can do, as steps of a script. In an argument $S and $O
// are the headers with its tokens for the agent's host and for the one of
// protocol 2, and $W those of a WebSocket handshake.
const (
	clientOpen   = iota // a connection, which is the current one from now on
	clientSend          // bytes on it
	clientHead          // a request line and headers on it: the empty line is added
	clientText          // a text message
	clientBinary        // a binary message
	clientClose         // a close frame: two bytes of code, a reason
	clientEnd           // the connection is half closed, cut, frozen or thawed
	clientPause         // time passes
	clientOps
)

// The hosts that the hostile client may reach.
const (
	sharedHost = "shared" // an agent
	oldHost    = "old"    // of protocol 2
)

// hostileClient is a client that does what a script says.
type hostileClient struct {
	w     *fuzzWorld
	conns []*hostileConn
	fill  map[string]string
}

// hostileConn is a connection of the client's.
type hostileConn struct {
	*memnet.Conn
	done chan struct{} // closed when the reader has ended
	err  error         // what is wrong with the answers
}

// FuzzHostileClient: whatever a client with rights to some hosts sends, it
// reaches no other, nothing reaches a service that the relay has not let in, and
// nobody else notices.
func FuzzHostileClient(f *testing.F) {
	for _, script := range clientSeeds() {
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > maxScript {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			w := newFuzzWorld(t)
			w.serveShared()
			c := newHostileClient(w)
			for _, step := range hostile.Steps(script, maxSteps) {
				c.do(step)
				synctest.Wait()
			}
			w.checkGood("after the script")
			c.judge()
			w.finish()
		})
	})
}

// serveShared attaches the hosts that the client may reach.
func (w *fuzzWorld) serveShared() {
	for _, id := range []string{sharedHost, oldHost} {
		w.secret(hostToken(id), clientToken(id))
	}
	w.s.StartAgent(sharedHost, map[string]agent.Handler{"": w.upgradable("shared"), "echo": echo()}, &agent.Config{
		Token: func(context.Context) (string, error) { return hostToken(sharedHost), nil },
	})
	w.s.MustConnect(oldHost, relaytest.HostConfig{Token: hostToken(oldHost), OnDial: w.serveOld})
}

// upgradable is service with an echo for whoever asks for an upgrade.
func (w *fuzzWorld) upgradable(name string) agent.Handler {
	return w.serviceWith(name, func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Upgrade") == "" {
			return false
		}
		conn, brw, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return true
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
		io.Copy(conn, brw)
		return true
	})
}

// serveOld answers a dial of protocol 2: messages come back, requests are
// answered, and one without the relay's proof is noted.
func (w *fuzzWorld) serveOld(h *relaytest.Host, d transport.StreamDial) {
	w.secret(d.Ticket)
	if d.Kind == transport.KindWS {
		c, err := h.DialBack(d)
		for err == nil {
			var t transport.MessageType
			var r io.Reader
			if t, r, err = c.Reader(); err == nil {
				p, _ := io.ReadAll(r)
				err = c.Write(t, p)
			}
		}
		return
	}
	c, err := h.DialBack(d)
	if err != nil {
		return
	}
	req, _, err := relaytest.ReadHTTPRequest(c)
	if err != nil {
		return // the client has broken its upload off
	}
	if req.Headers["x-proof"] != proof || !strings.HasPrefix(req.Path, "/") || strings.HasPrefix(req.Path, "//") {
		w.noteUnasked(fmt.Sprintf("%+v", req))
	}
	c.Write(transport.Text, transport.Encode(transport.HTTPResponse{Status: 200}))
	c.Write(transport.Binary, []byte("old"))
	c.Write(transport.Text, transport.Encode(transport.HTTPEnd{}))
	c.Reader()
}

func newHostileClient(w *fuzzWorld) *hostileClient {
	return &hostileClient{w: w, fill: map[string]string{
		"$S": "Dialback-Authorization: " + clientToken(sharedHost) + "\r\n",
		"$O": "Dialback-Authorization: " + clientToken(oldHost) + "\r\n",
		"$W": hostile.Handshake,
	}}
}

func (c *hostileClient) do(step hostile.Step) {
	arg := step.Fill(c.fill)
	op := step.Op % clientOps
	switch {
	case op == clientPause:
		time.Sleep(step.Pause())
		return
	case op == clientOpen || len(c.conns) == 0:
		c.open()
		if op == clientOpen {
			return
		}
	}
	conn := c.conns[len(c.conns)-1]
	switch op {
	case clientSend:
		conn.send(arg)
	case clientHead:
		conn.send(append(arg, "\r\n"...))
	case clientText:
		conn.send(hostile.Masked(hostile.Text, arg))
	case clientBinary:
		conn.send(hostile.Masked(hostile.Binary, arg))
	case clientClose:
		conn.send(hostile.Masked(hostile.Close, arg))
	case clientEnd:
		switch step.First() % 4 {
		case 0:
			_ = conn.CloseWrite()
		case 1:
			conn.Cut()
		case 2:
			conn.Freeze()
		case 3:
			conn.Thaw()
		}
	}
}

func (c *hostileClient) open() {
	if len(c.conns) >= 8 {
		return
	}
	nc, err := c.w.s.Transport().DialContext(c.w.t.Context(), "tcp", "relay.test:80")
	if err != nil {
		c.w.t.Fatal(err)
	}
	conn := &hostileConn{Conn: nc.(*memnet.Conn), done: make(chan struct{})}
	c.conns = append(c.conns, conn)
	go conn.read()
}

func (c *hostileConn) send(b []byte) {
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = c.Write(b)
}

// read takes what the relay answers. It does not know what was asked, so what
// it cannot read as an answer it passes over.
func (c *hostileConn) read() {
	defer close(c.done)
	br := bufio.NewReader(c)
	for {
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			break
		}
		if code := resp.Header.Get("Dialback-Error"); code != "" && !slices.Contains(codes[code], resp.StatusCode) {
			c.err = fmt.Errorf("answered %d with the code %q", resp.StatusCode, code)
		}
		if resp.Header.Get("X-Proof") != "" {
			c.err = fmt.Errorf("the relay's own header came back: %v", resp.Header)
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			break
		}
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	_, _ = io.Copy(io.Discard, br)
}

// judge gives everything its time, has the client leave, and looks at what is
// left.
func (c *hostileClient) judge() {
	time.Sleep(80 * time.Second)
	for _, conn := range c.conns {
		conn.Thaw()
		_ = conn.Close()
		<-conn.done
		if conn.err != nil {
			c.w.t.Error(conn.err)
		}
	}
	time.Sleep(5*time.Minute + 10*time.Second)
	c.w.settled("when the client has left")
	c.w.checkGood("when the client has left")
}

// clientSeeds are dialogues that go deep.
func clientSeeds() [][]byte {
	S, script := hostile.S, hostile.Script
	const (
		shared, old  = "/hosts/shared", "/hosts/old"
		h1           = " HTTP/1.1\r\nHost: x\r\n"
		half, cut    = "\x00", "\x01"
		freeze, thaw = "\x02", "\x03"
		aMinute      = "\x08"
	)
	open := S(clientOpen, "")
	head := func(s string) hostile.Step { return S(clientHead, s) }
	return [][]byte{
		script(open, head("GET "+shared+"/a?b"+h1+"$S"), head("GET "+shared+"/%2e%2e/c?token=x"+h1+"$S")),
		script(open, head("POST "+shared+"/"+h1+"$SContent-Length: 4"+"\r\n"), S(clientSend, "bo"), S(clientSend, "dyGET "+shared+"/2 HTTP/1.1\r\nHost: x\r\n\r\n")),
		script(open, head("POST "+shared+"/"+h1+"$STransfer-Encoding: chunked\r\nTrailer: X-T\r\n"), S(clientSend, "3\r\nabc\r\n"), S(clientSend, "0\r\nX-T: v\r\n\r\n")),
		script(open, head("POST "+shared+"/"+h1+"$SContent-Length: 4\r\nTransfer-Encoding: chunked\r\n"), S(clientSend, "0\r\n\r\nGET "+shared+"/smuggled HTTP/1.1\r\nHost: x\r\n\r\n")),
		script(open, head("POST "+shared+"/"+h1+"$SContent-Length: 40\r\n"), S(clientSend, "part"), S(clientPause, aMinute), S(clientEnd, half)),
		script(open, head("POST "+old+"/"+h1+"$OContent-Length: 40\r\n"), S(clientSend, "part"), S(clientEnd, cut)),
		script(open, head("POST "+old+"/"+h1+"$OTransfer-Encoding: chunked\r\n"), S(clientSend, "3\r\nabc\r\n0\r\n\r\n")),
		script(open, head("GET "+old+"//evil/"+h1+"$O"), head("GET "+old+"/@evil/"+h1+"$O")),
		script(open, head("GET "+old+"/?token=client-token-of-old HTTP/1.1\r\nHost: x\r\nReferer: http://x/?token=client-token-of-old&a\r\n")),
		script(open, head("PUT "+shared+"/"+h1+"$SExpect: 100-continue\r\nContent-Length: 3\r\n"), S(clientSend, "abc")),
		script(open, head("GET "+shared+"/ws HTTP/1.1\r\n$W$S"), S(clientText, "hi"), S(clientClose, "\x03\xe8bye"), S(clientEnd, half)),
		script(open, head("GET "+old+"/ws HTTP/1.1\r\n$W$O"), S(clientText, "hi"), S(clientBinary, "\x00"), S(clientClose, "\x0f\xa1bye")),
		script(open, head("GET "+old+"/ws HTTP/1.1\r\n$W$O"), S(clientSend, "\x01\x82\x00\x00\x00\x00he\x89\x80\x00\x00\x00\x00\x80\x81\x00\x00\x00\x00y"), S(clientSend, "\x83\x80\x00\x00\x00\x00")),
		script(open, head("GET /connect/shared?service=echo HTTP/1.1\r\n$W$S"), S(clientBinary, "bytes"), S(clientText, `{"type":"stream:eof"}`), S(clientPause, aMinute)),
		script(open, head("GET /connect/shared?service=echo HTTP/1.1\r\n$W$S"), S(clientBinary, "bytes"), S(clientText, `not eof`)),
		script(open, head("GET /connect/shared?service=none HTTP/1.1\r\n$W$SSec-WebSocket-Protocol: a, b\r\n"), S(clientBinary, "early"), S(clientEnd, freeze), S(clientPause, aMinute), S(clientEnd, thaw)),
		script(open, head("GET /connect/old HTTP/1.1\r\n$W$O")),
		script(open, head("GET "+shared+"/up"+h1+"$SConnection: Upgrade\r\nUpgrade: other\r\n"), S(clientSend, "bytes"), S(clientEnd, half), S(clientPause, aMinute)),
		script(open, head("GET "+shared+"/up"+h1+"$SConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c, other\r\nHTTP2-Settings: AAMAAABk\r\n"), S(clientSend, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), S(clientEnd, half)),
		script(open, head("GET "+old+"/up"+h1+"$OConnection: Upgrade\r\nUpgrade: other\r\n"), head("GET "+old+"/ws HTTP/1.0\r\n$W$O")),
		script(open, head("GET "+shared+"/up"+h1+"$SConnection: Upgrade, X-Proof\r\nUpgrade: other\r\nContent-Length: 3\r\nX-Proof: forged\r\n"), S(clientSend, "abcdef"), S(clientEnd, cut)),
		script(open, head("GET /hosts/good-5b1f0f6e3c/"+h1+"$S"), head("GET /hosts/good-5b1f0f6e3c/_whoowns"+h1+"$S"), head("GET /presence?hostIds=shared,old,good-5b1f0f6e3c"+h1+"$S")),
		script(open, head("GET /hosts/%73hared/"+h1+"$S"), head("GET /hosts/sha%2fred/"+h1+"$S"), head("GET /hosts/../presence"+h1), head("GET //hosts/shared/"+h1+"$S")),
		script(open, head("GET /v2/control?hostId=shared&proto=3 HTTP/1.1\r\n$WDialback-Authorization: none\r\n"), S(clientText, `{"type":"ping"}`)),
		script(open, head("GET /v2/dial?hostId=shared&ticket=a.b.c HTTP/1.1\r\n$W"), head("POST /node/dial"+h1+"Content-Length: 2\r\n"), S(clientSend, "{}"), head("GET /health"+h1)),
		script(open, S(clientSend, "GET "+shared+"/ HTTP/1.1\r\nHost: x\r\nX: "), S(clientPause, aMinute)),
		script(open, head("GET "+shared+"/ HTTP/1.0\r\n$S"), S(clientEnd, half)),
		script(open, head("GET http://other/hosts/shared/ HTTP/1.1\r\nHost: x\r\n$S"), head("OPTIONS * HTTP/1.1\r\nHost: x\r\n"), head("CONNECT shared:80 HTTP/1.1\r\nHost: x\r\n$S")),
		script(open, head("GET "+shared+"/ws HTTP/1.1\r\n$W$SOrigin: http://evil.test\r\nCookie: session=1\r\n"), open, head("GET "+shared+"/?token=client-token-of-shared&x HTTP/1.1\r\n$WOrigin: http://evil.test\r\n")),
	}
}
