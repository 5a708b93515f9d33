package agent_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/internal/hostile"
	"github.com/dialback/dialback/internal/memnet"
	"github.com/dialback/dialback/transport"
)

// What a hostile relay, and a hostile service behind the agent, can do, as steps
// of a script. In an argument $T is a ticket and $G the last generation.
const (
	relayText   = iota // a text message on the newest control socket
	relayRaw           // bytes on it
	relayClose         // a close frame on it: two bytes of code, a reason
	relayCut           // its connection is cut, frozen or muted
	streamText         // a text message on the newest data socket
	streamBytes        // a binary message on it
	streamRaw          // bytes on it
	streamClose        // a close frame on it
	streamCut          // its connection is cut, frozen or muted
	relayAnswer        // what the next handshake is answered with
	localAnswer        // what the HTTP service answers from now on
	relayPause         // time passes
	relayOps
)

const (
	agentToken = "agent-token-1d9c33a0b7"
	evilTicket = "evil.ticketof8e2f6a77c1.mac"
	// lastGeneration is above every one that a script says.
	lastGeneration = 1 << 52
)

// hostileRelay is what an agent is connected to.
type hostileRelay struct {
	t   *testing.T
	net memnet.Network

	// Guarded by mu.
	mu      sync.Mutex
	control *hostileSocket
	data    *hostileSocket
	sockets []*hostileSocket
	open    []net.Conn // of the HTTP service
	next    []byte     // answers one handshake
	local   []byte     // answers requests to the HTTP service
	good    bool       // from now on it is a relay like any other
	greeted chan *hostileSocket
	dialed  chan *hostileSocket
	wrong   []string // what must not have happened
	told    bool     // the ticket was said where it is none: the relay's words may be quoted
}

// hostileSocket is the relay's end of a WebSocket and the connection beneath.
type hostileSocket struct {
	*hostile.Peer
	conn *memnet.Conn
	text chan string // text messages, while there is room
	sent int         // pieces that the script has sent
}

// FuzzHostileRelay: whatever the relay sends, an agent reaches no address but
// its services', comes back when the relay is a good one again, and stops in
// time.
func FuzzHostileRelay(f *testing.F) {
	for _, script := range relaySeeds() {
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 4<<10 {
			return
		}
		synctest.Test(t, func(t *testing.T) { fuzzHostileRelay(t, hostile.Steps(script, 40)) })
	})
}

func fuzzHostileRelay(t *testing.T, steps []hostile.Step) {
	var log, panics lockedLog
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := newHostileRelay(t, &panics)
	dial := r.dial
	a := run(t, agent.Config{
		RelayURL: "ws://relay:80", HostID: "h", Transport: &http.Transport{DialContext: dial},
		Token:  func(context.Context) (string, error) { return agentToken, nil },
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: withoutReason})),
		Services: map[string]agent.Handler{
			"":    agent.ForwardHTTPWith("http://local:80/base", agent.HTTPOptions{DialContext: dial}),
			"raw": agent.Raw(echo), "tcp": agent.ForwardTCPWith("tcp:22", agent.TCPOptions{DialContext: dial}),
		},
	})
	synctest.Wait()
	for _, step := range steps {
		r.do(step)
		synctest.Wait()
	}
	r.reform()
	if left := a.Stats().Streams - 1; left > r.piped() {
		t.Errorf("%d streams are left of the hostile relay's", left)
	}
	start := time.Now()
	_ = a.stop()
	if took := time.Since(start); took > 7*time.Second { // StopTimeout, CloseTimeout
		t.Errorf("Run ended %v after its context", took)
	}
	r.end()
	synctest.Wait()
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 96<<20 {
		t.Errorf("one script allocated %d MiB", grown>>20)
	}
	secrets := []string{agentToken}
	if !r.told {
		secrets = append(secrets, evilTicket, "ticketof8e2f6a77c1")
	}
	for _, secret := range secrets {
		if strings.Contains(log.String(), secret) {
			t.Errorf("%s is in the log: %s", secret, log.String())
		}
	}
	if strings.Contains(log.String(), "panic") || strings.Contains(panics.String(), "panic") {
		t.Errorf("something panicked: %s%s", log.String(), panics.String())
	}
	for _, w := range r.wrong {
		t.Error(w)
	}
}

// withoutReason leaves out of a logged error the reason of the peer's close
// frame: a relay's own words may be quoted, and say what it likes.
func withoutReason(_ []string, a slog.Attr) slog.Attr {
	err, _ := a.Value.Any().(error)
	var closed *transport.CloseError
	if errors.As(err, &closed) && closed.Remote {
		return slog.String(a.Key, strings.ReplaceAll(err.Error(), strconv.Quote(closed.Reason), "..."))
	}
	return a
}

// lockedLog is a log that may be written and read at once.
type lockedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newHostileRelay(t *testing.T, panics io.Writer) *hostileRelay {
	r := &hostileRelay{t: t, greeted: make(chan *hostileSocket, 100), dialed: make(chan *hostileSocket, 100)}
	r.local = []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	listen := func(addr string) net.Listener {
		ln, err := r.net.Listen(addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		return ln
	}
	srv := &http.Server{Handler: r}
	ln := listen("relay:80")
	go srv.Serve(ln)
	t.Cleanup(func() { srv.Close() })
	go r.accept(listen("local:80"), r.serveLocal)
	go r.accept(listen("tcp:22"), func(c net.Conn) { io.Copy(c, c); c.Close() })
	return r
}

// dial is all that the agent has of a network.
func (r *hostileRelay) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	switch addr {
	case "relay:80", "local:80", "tcp:22":
	default:
		r.note("the agent connects to " + addr)
	}
	return r.net.DialContext(ctx, network, addr)
}

func (r *hostileRelay) note(wrong string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, wrong)
}

func (r *hostileRelay) accept(ln net.Listener, serve func(net.Conn)) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		r.open = append(r.open, c)
		r.mu.Unlock()
		go serve(c)
	}
}

// serveLocal is an HTTP service below /base that answers with what it was told
// to, whatever the request.
func (r *hostileRelay) serveLocal(c net.Conn) {
	br := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(br)
		if err != nil {
			if err != io.EOF && !strings.Contains(err.Error(), "closed") && !strings.Contains(err.Error(), "unexpected EOF") {
				r.note(fmt.Sprintf("the service was sent what is no request: %v", err))
			}
			return
		}
		if uri := req.RequestURI; uri != "*" && !strings.HasPrefix(uri, "/base") || req.Host != "local:80" && req.Host != "local" {
			r.note(fmt.Sprintf("the service was asked for %s of %s", uri, req.Host))
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		r.mu.Lock()
		answer := r.local
		r.mu.Unlock()
		c.SetWriteDeadline(time.Now().Add(time.Second))
		c.Write(answer)
		if req.Header.Get("Upgrade") != "" {
			io.Copy(io.Discard, br) // bytes of another protocol
			return
		}
	}
}

// ServeHTTP takes handshakes.
func (r *hostileRelay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	answer := r.next
	r.next = nil
	if r.good && req.URL.Path == "/v2/dial" && req.URL.Query().Get("ticket") != "good" {
		answer = []byte("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
	}
	r.mu.Unlock()
	if answer != nil {
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			c.Write(answer)
			c.Close()
		}
		return
	}
	s := &hostileSocket{text: make(chan string, 100)}
	p, err := hostile.Accept(w, req, func(text []byte) {
		select {
		case s.text <- string(text):
		default:
		}
	})
	if err != nil {
		return
	}
	s.Peer, s.conn = p, p.Conn().(*memnet.Conn)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sockets = append(r.sockets, s)
	if req.URL.Path == "/v2/control" {
		r.control = s
		if r.good {
			s.Send(hostile.Text, transport.Encode(transport.Hello{Generation: lastGeneration}))
			r.greeted <- s
		}
		return
	}
	r.data = s
	if r.good {
		r.dialed <- s
	}
}

func (r *hostileRelay) do(step hostile.Step) {
	arg := step.Fill(map[string]string{"$T": evilTicket})
	r.mu.Lock()
	control, data := r.control, r.data
	switch step.Op % relayOps {
	case relayAnswer:
		r.next = bytes.ReplaceAll(arg, []byte(evilTicket), []byte("a ticket")) // its own words may be quoted
	case localAnswer:
		r.local = arg
	default:
		elsewhere := bytes.ReplaceAll(arg, []byte(`"ticket":"`+evilTicket+`"`), nil)
		r.told = r.told || bytes.Contains(elsewhere, []byte(evilTicket))
	}
	r.mu.Unlock()
	switch op := step.Op % relayOps; op {
	case relayText:
		control.do(0, arg)
	case relayRaw, relayClose, relayCut:
		control.do(op-relayRaw+2, arg)
	case streamText, streamBytes, streamRaw, streamClose, streamCut:
		data.do(op-streamText, arg)
		if data != nil {
			data.sent++
		}
	case relayPause:
		time.Sleep(step.Pause())
	}
}

// piped is how many data sockets were sent something behind a request, as a relay
// does not (PROTOCOL.md, section 9): their end is noticed with the service's answer.
func (r *hostileRelay) piped() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sockets {
		if s.sent > 1 {
			n++
		}
	}
	return n
}

// do sends text, a binary message, bytes or a close frame, or cuts.
func (s *hostileSocket) do(what byte, arg []byte) {
	if s == nil {
		return
	}
	switch what {
	case 0:
		s.Send(hostile.Text, arg)
	case 1:
		s.Send(hostile.Binary, arg)
	case 2:
		s.Raw(arg)
	case 3:
		s.Send(hostile.Close, arg)
	case 4:
		switch {
		case len(arg) == 0 || arg[0]%3 == 0:
			s.conn.Cut()
		case arg[0]%3 == 1:
			s.conn.Freeze()
		default:
			s.Mute()
		}
	}
}

// reform makes the relay a good one: the agent must come back to it, and serve.
func (r *hostileRelay) reform() {
	r.mu.Lock()
	r.good, r.next = true, nil
	sockets := r.sockets
	r.mu.Unlock()
	for _, s := range sockets {
		s.conn.Cut()
	}
	var control, data *hostileSocket
	select {
	case control = <-r.greeted:
	case <-time.After(3 * time.Minute): // a minute of SlowReconnectDelay, and some
		r.t.Error("the agent has not come back")
		return
	}
	control.Send(hostile.Text, transport.Encode(transport.StreamDial{
		Ticket: "good", Kind: transport.KindTCP, Proto: transport.ProtoRaw, Service: "raw", Generation: lastGeneration, Stream: "good",
	}))
	select {
	case data = <-r.dialed:
	case <-time.After(10 * time.Second):
		r.t.Error("the agent does not dial back")
		return
	}
	if got := receive(r.t, data.text, "stream:opened"); got != `{"type":"stream:opened"}` {
		r.t.Errorf("the stream begins with %s", got)
	}
	before := data.Received()
	data.Send(hostile.Binary, []byte("hello"))
	time.Sleep(time.Second)
	if data.Received()-before != len("hello") {
		r.t.Error("the echo of a good stream did not come back")
	}
}

// end closes what is left.
func (r *hostileRelay) end() {
	r.mu.Lock()
	sockets, open := r.sockets, r.open
	r.mu.Unlock()
	for _, s := range sockets {
		s.Close()
	}
	for _, c := range open {
		c.Close()
	}
}
