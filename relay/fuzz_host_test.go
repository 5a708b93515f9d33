package relay_test

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/internal/hostile"
	"github.com/dialback/dialback/internal/memnet"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/transport"
)

// What a hostile host can do, as steps of a script. In an argument $T is the
// newest ticket and $G the newest generation.
const (
	hostAttach   = iota // a control socket of protocol 2, or 3 if the argument is odd
	hostText            // a text message on the control socket
	hostRaw             // bytes on it
	hostClose           // a close frame on it: two bytes of code, a reason
	hostCut             // its connection is cut, frozen or muted
	hostDialBack        // a data socket, with the newest ticket
	hostDialAny         // a data socket, with the argument as its query
	dataText            // a text message on the newest data socket
	dataBinary          // a binary one
	dataRaw             // bytes on it
	dataClose           // a close frame on it
	dataCut             // its connection is cut, frozen or muted
	hostPause           // time passes
	hostAsked           // a client comes: the argument says what it wants
	hostOps
)

// evilHost is the hostile host's own name.
const evilHost = "evil"

// fuzzHost is a host that does what a script says.
type fuzzHost struct {
	w       *fuzzWorld
	control *fuzzSocket
	data    *fuzzSocket
	sockets []*fuzzSocket
	clients []*fuzzClient
	dials   []*fuzzDial
	seq     int

	mu     sync.Mutex
	ticket string
	gen    uint64
}

// fuzzSocket is a WebSocket of the host's and the connection beneath.
type fuzzSocket struct {
	*hostile.Peer
	conn    *memnet.Conn
	control bool
	// silent says that the host has made it so that no end can be seen.
	silent bool
	// broken says that its end may come without a close frame.
	broken bool
}

// FuzzHostileHost: whatever a host sends on its sockets, nobody but its own
// clients notices, and those get an answer with a reason, in time.
func FuzzHostileHost(f *testing.F) {
	for _, script := range hostSeeds() {
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > maxScript {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			w := newFuzzWorld(t)
			h := &fuzzHost{w: w}
			w.secret(hostToken(evilHost), clientToken(evilHost))
			for _, step := range hostile.Steps(script, maxSteps) {
				h.do(step)
				synctest.Wait()
			}
			w.checkGood("after the script")
			h.judge()
			w.finish()
		})
	})
}

func (h *fuzzHost) do(step hostile.Step) {
	h.mu.Lock()
	arg := step.Fill(map[string]string{"$T": h.ticket, "$G": strconv.FormatUint(h.gen, 10)})
	h.mu.Unlock()
	h.w.said(arg)
	switch step.Op % hostOps {
	case hostAttach:
		h.attach(step.First()%2 == 1)
	case hostDialBack:
		h.mu.Lock()
		q := url.Values{"hostId": {evilHost}, "ticket": {h.ticket}}.Encode()
		h.mu.Unlock()
		h.dialBack(q)
	case hostDialAny:
		h.dialBack(url.PathEscape(string(arg)))
	case hostPause:
		time.Sleep(step.Pause())
	case hostAsked:
		h.ask(step.First())
	case hostText, hostRaw, hostClose, hostCut:
		h.control.do(step.Op%hostOps-hostText, arg)
	case dataText, dataRaw, dataClose, dataCut:
		h.data.do([]byte{0, 0, 1, 2, 3}[step.Op%hostOps-dataText], arg)
	case dataBinary:
		if h.data != nil {
			h.data.Send(hostile.Binary, arg)
		}
	}
}

// do sends a text message, bytes or a close frame, or cuts the connection.
func (s *fuzzSocket) do(what byte, arg []byte) {
	if s == nil {
		return
	}
	switch what {
	case 0:
		s.Send(hostile.Text, arg)
	case 1:
		s.broken = true // the library may give the connection up
		s.Raw(arg)
	case 2:
		code := uint16(1000)
		if len(arg) >= 2 {
			code, arg = uint16(arg[0])<<8|uint16(arg[1]), arg[2:]
		}
		s.SendClose(code, arg)
	case 3:
		s.broken = true
		switch first(arg) % 3 {
		case 0:
			s.conn.Cut()
		case 1:
			s.silent = true
			s.conn.Freeze()
		case 2:
			s.Mute()
		}
	}
}

func first(b []byte) byte {
	if len(b) == 0 {
		return 0
	}
	return b[0]
}

// open opens a WebSocket; nil if the relay does not accept one.
func (h *fuzzHost) open(request string, onText func([]byte)) *fuzzSocket {
	conn, err := h.w.s.Transport().DialContext(h.w.t.Context(), "tcp", "relay.test:80")
	if err != nil {
		h.w.t.Fatal(err)
	}
	p, resp, err := hostile.Dial(conn, request, onText)
	if err != nil {
		h.w.t.Errorf("%.60q was not answered: %v", request, err)
	}
	if p == nil {
		if resp != nil && resp.StatusCode < 400 {
			h.w.t.Errorf("%.60q was answered %d", request, resp.StatusCode)
		}
		return nil
	}
	s := &fuzzSocket{Peer: p, conn: conn.(*memnet.Conn)}
	h.sockets = append(h.sockets, s)
	h.w.atEnd(p.Close)
	return s
}

func (h *fuzzHost) attach(proto3 bool) {
	q := "hostId=" + evilHost
	if proto3 {
		h.seq++
		q += "&proto=3&instance=0d7cbd8e-5c39-4e52-a2f1-0f3e8a3a7b54&seq=" + strconv.Itoa(h.seq)
	}
	if s := h.open("GET /v2/control?"+q+" HTTP/1.1\r\n"+hostile.Handshake+"Dialback-Authorization: "+hostToken(evilHost)+"\r\n", h.onFrame); s != nil {
		h.control, s.control = s, true
		time.Sleep(10 * time.Millisecond)
	}
}

func (h *fuzzHost) onFrame(p []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch f, _ := transport.Decode(p); f := f.(type) {
	case transport.StreamDial:
		h.ticket = f.Ticket
		h.w.secret(f.Ticket, strings.Split(f.Ticket, ".")[1])
	case transport.Hello:
		h.gen = f.Generation
	}
}

func (h *fuzzHost) dialBack(query string) {
	if s := h.open("GET /v2/dial?"+query+" HTTP/1.1\r\n"+hostile.Handshake, nil); s != nil {
		h.data = s
	}
}

// ask has a client come to the host.
func (h *fuzzHost) ask(what byte) {
	if len(h.clients)+len(h.dials) >= 12 {
		return
	}
	const at = "/hosts/" + evilHost
	auth := "Dialback-Authorization: " + clientToken(evilHost) + "\r\n"
	request := func(line, headers, body string) *fuzzClient {
		return h.w.ask(line, line+" HTTP/1.1\r\n"+auth+headers, body)
	}
	var c *fuzzClient
	switch what % 8 {
	case 0:
		c = request("GET "+at+"/a?b", "Host: relay.test\r\n", "")
	case 1:
		c = request("POST "+at+"/", "Host: relay.test\r\nContent-Length: 4\r\n", "body")
	case 2:
		c = request("POST "+at+"/slow", "Host: relay.test\r\nTransfer-Encoding: chunked\r\n", "3\r\nabc\r\n")
		c.slow = true
	case 3:
		c = request("GET "+at+"/ws", hostile.Handshake, "")
	case 4:
		c = request("GET /connect/"+evilHost+"?service=s", hostile.Handshake, "\x82\x83\x00\x00\x00\x00abc")
	case 5:
		c = request("HEAD "+at+"/", "Host: relay.test\r\nTE: trailers\r\n", "")
	case 6:
		h.dial()
		return
	case 7:
		c = request("GET "+at+"/up", "Host: relay.test\r\nConnection: Upgrade\r\nUpgrade: other\r\n", "early")
	}
	h.clients = append(h.clients, c)
}

// dial opens a stream from inside the server.
func (h *fuzzHost) dial() {
	d := &fuzzDial{done: make(chan struct{})}
	h.dials = append(h.dials, d)
	go d.run(h.w)
}

// fuzzDial is a Dial of the server's own.
type fuzzDial struct {
	done chan struct{} // closed when conn is set, or there is none
	conn net.Conn
}

func (d *fuzzDial) run(w *fuzzWorld) {
	defer close(d.done)
	start := time.Now()
	conn, err := w.s.Relay.Dial(w.t.Context(), evilHost, relay.Target{Service: "s"})
	if took := time.Since(start); took > 15*time.Second {
		w.t.Errorf("Dial took %v: %v", took, err)
	}
	if err != nil {
		if f := relay.Describe(err); f.Code == "internal" {
			w.t.Errorf("Dial failed with %v, which has no name", err)
		}
		return
	}
	fmt.Fprint(conn, "x")
	d.conn = conn
}

// judge gives everything its time, then has the clients leave, and looks at
// what is left.
func (h *fuzzHost) judge() {
	w := h.w
	time.Sleep(10*time.Second + 65*time.Second + 5*time.Second) // dial, header
	for _, c := range h.clients {
		if err := c.check(); err != nil {
			w.t.Errorf("%s: %v", c.what, err)
		}
		c.leave()
	}
	for _, d := range h.dials {
		if <-d.done; d.conn != nil {
			d.conn.Close()
		}
	}
	time.Sleep(5*time.Minute + 30*time.Second) // StallTimeout; the pool's 90 and a silent control socket's 110 seconds
	w.settled("when the clients have left")
	for i, s := range h.sockets {
		if s.silent {
			continue
		}
		select {
		case <-s.Done():
			if code, reason := s.Closed(); code == 0 && s.control && !s.broken {
				w.t.Errorf("control socket %d ended without a close frame", i)
			} else if code != 0 && !transport.CloseCode(code).Sendable() && code != 1005 {
				w.t.Errorf("socket %d was closed with %d %q, which means nothing", i, code, reason)
			}
		default:
			w.t.Errorf("socket %d is still open", i)
		}
	}
	w.checkGood("when all is over")
}
