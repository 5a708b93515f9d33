package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"time"

	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/transport"
)

// ask is what a client does, as the schedule has it.
type ask struct {
	ID     string
	Kind   requestKind
	Host   string
	Slot   string        // of the node to which its load balancer leads it
	Key    bool          // with an Idempotency-Key
	Body   int           // bytes of a request's body, or of a stream each way
	Size   int           // bytes of the answer
	Read   time.Duration // the service reads the request's body only then
	Delay  time.Duration // of the service, from there
	Chunks int           // pieces of a stream
	Gap    time.Duration // between them
	Leave  time.Duration // the client leaves then; zero means never
	Half   time.Duration // the client of a request ends its direction then; zero means never
	final  bool          // after all faults have ended
}

func (a ask) String() string {
	s := fmt.Sprintf("%s %s %s at %s", a.ID, a.Kind, a.Host, a.Slot)
	switch a.Kind {
	case get, post:
		s += fmt.Sprintf(" body %d", a.Body)
		if a.Read > 0 {
			s += fmt.Sprintf(" read after %v", a.Read)
		}
		s += fmt.Sprintf(", answer %d after %v", a.Size, a.Delay)
		if a.Key {
			s += ", Idempotency-Key"
		}
	default:
		s += fmt.Sprintf(" %d bytes in %d pieces, %v apart", a.Body, a.Chunks, a.Gap)
	}
	if a.Leave > 0 {
		s += fmt.Sprintf(", leaves after %v", a.Leave)
	}
	if a.Half > 0 {
		s += fmt.Sprintf(", half closes after %v", a.Half)
	}
	return s
}

// clientName is the actor of all clients.
const clientName = "c"

// do is one client from beginning to end.
func (w *World) do(a ask) {
	r := &request{id: a.ID, kind: a.Kind, host: a.Host, repeatable: a.Kind == get || a.Key, bodySize: a.Body, ask: a}
	slot := w.clientSlot(a.Slot)
	r.node = w.at(slot)
	w.outcomes.begin(r)
	if r.node == nil {
		w.outcomes.end(r, lostConnection)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), longestWait)
	defer cancel()
	if a.Leave > 0 {
		left, leave := context.WithCancelCause(ctx)
		defer leave(nil)
		t := time.AfterFunc(a.Leave, func() { leave(errLeft) })
		defer t.Stop()
		ctx = left
	}
	var code string
	switch a.Kind {
	case get, post:
		code = w.exchange(ctx, r, slot)
	case webSocket:
		code = w.webSocket(ctx, r, slot)
	case byConnect:
		code = w.connect(ctx, r, slot)
	case byDial:
		code = w.dial(ctx, r)
	}
	if a.Half > 0 && (code == "client_gone" || code == lostConnection || code == broken) {
		code = halfClosed
	}
	if code != "" && errors.Is(context.Cause(ctx), errLeft) {
		code = clientLeft
	} else if code != "" && ctx.Err() != nil {
		code = timedOut
	}
	w.outcomes.end(r, code)
}

var errLeft = errors.New("sim: the client leaves")

// transport is a client's connection to a node of its own.
func (w *World) transport(slot string) *http.Transport {
	return &http.Transport{DialContext: w.network.dialer(w.clients, func() string { return slot }), DisableKeepAlives: true, DisableCompression: true}
}

// exchange sends a request and checks its answer. It returns a code of the
// relay's, or what the client has found.
func (w *World) exchange(ctx context.Context, r *request, slot string) string {
	a := r.ask
	u := fmt.Sprintf("http://node/hosts/%s/sim~%s~/work?read=%d&delay=%d&size=%d", a.Host, a.ID, a.Read.Milliseconds(), a.Delay.Milliseconds(), a.Size)
	var body io.Reader
	if a.Body > 0 {
		body = bytes.NewReader(patterned(a.ID, 0, a.Body))
	}
	req, err := http.NewRequestWithContext(ctx, string(a.Kind), u, body)
	if err != nil {
		return "sim: " + err.Error()
	}
	if a.Key {
		req.Header.Set("Idempotency-Key", a.ID)
	}
	if a.Half > 0 {
		half := &halfCloser{after: a.Half}
		defer half.stop()
		req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: half.got}))
	}
	resp, err := w.transport(slot).RoundTrip(req)
	if err != nil {
		return lostConnection
	}
	defer resp.Body.Close()
	p, err := io.ReadAll(resp.Body)
	if code := resp.Header.Get("Dialback-Error"); code != "" {
		if err != nil {
			return lostConnection
		}
		return code
	}
	if at := differs(a.ID, 0, p); at >= 0 {
		w.tr.violated("I4 bytes", "%s: byte %d of %d of the answer is not what was sent: %.60q", a.ID, at, len(p), p[at:])
	}
	switch {
	case err != nil:
		return broken
	case resp.Header.Get("Sim-Id") != a.ID:
		w.tr.violated("I4 bytes", "%s got the answer %d of %q", a.ID, resp.StatusCode, resp.Header.Get("Sim-Id"))
	case len(p) != a.Size:
		w.tr.violated("I4 bytes", "%s: the answer ended cleanly after %d of %d bytes", a.ID, len(p), a.Size)
	}
	return ""
}

// webSocket opens a WebSocket to a host, and checks the echo of each message.
func (w *World) webSocket(ctx context.Context, r *request, slot string) string {
	a := r.ask
	conn, err := transport.Dial(ctx, fmt.Sprintf("http://node/hosts/%s/sim~%s~/ws", a.Host, a.ID), &transport.DialOptions{
		Options: transport.Options{ReadLimit: -1}, Transport: w.transport(slot), HandshakeTimeout: -1,
	})
	if err != nil {
		var answered *transport.HandshakeError
		if errors.As(err, &answered) && answered.Code != "" {
			return answered.Code
		}
		return lostConnection
	}
	defer func() { <-conn.Done() }()
	defer context.AfterFunc(ctx, conn.CloseNow)()
	r.opened.Store(true)
	for i := range a.Chunks {
		kind := transport.MessageType(1 + i%2)
		want := []byte(fmt.Sprintf("sim~%s~ message %d ", a.ID, i))
		if err := conn.Write(kind, want); err != nil {
			return w.whyClosed(ctx, conn, r)
		}
		t, rd, err := conn.Reader()
		var got []byte
		if err == nil {
			got, err = io.ReadAll(rd)
		}
		if err != nil {
			conn.CloseNow()
			return closedCode(err)
		}
		if t != kind || !bytes.Equal(got, want) {
			w.tr.violated("I4 bytes", "%s: message %d of type %d came back as %q of type %d", a.ID, i, kind, got, t)
		}
		pause(ctx, a.Gap)
	}
	conn.Close(transport.CloseNormal, "")
	return ""
}

// whyClosed reads how a connection has ended.
func (w *World) whyClosed(ctx context.Context, conn transport.Conn, r *request) string {
	for {
		_, rd, err := conn.Reader()
		if err == nil {
			_, err = io.Copy(io.Discard, rd)
		}
		if err != nil {
			conn.CloseNow()
			return closedCode(err)
		}
	}
}

// closedCode is what a close code says, in the words of the JSON codes.
func closedCode(err error) string {
	switch transport.CloseCodeOf(err) {
	case transport.CloseOffline:
		return "offline" // host_offline, host_gone, host_replaced, store_unavailable or node_unreachable
	case transport.CloseNoDialBack:
		return "no_dial_back"
	case transport.CloseRefused:
		return "refused"
	case transport.CloseRestart:
		return "restart" // of the node: unlike draining, it says nothing of what was reached
	case transport.CloseForbidden:
		return "revoked"
	case transport.CloseDataAbnormal:
		return "stream_closed"
	case transport.CloseAbnormal:
		return lostConnection
	}
	return fmt.Sprintf("close %d", transport.CloseCodeOf(err))
}

// connect opens a byte stream by /connect.
func (w *World) connect(ctx context.Context, r *request, slot string) string {
	conn, err := transport.Dial(ctx, "http://node/connect/"+r.host+"?service=raw", &transport.DialOptions{
		Options: transport.Options{ReadLimit: -1}, Transport: w.transport(slot), HandshakeTimeout: -1,
	})
	if err != nil {
		return lostConnection
	}
	sc := transport.NewStreamConn(conn)
	defer func() { <-conn.Done() }()
	defer context.AfterFunc(ctx, conn.CloseNow)()
	if err := w.bytes(ctx, r, sc); err != nil {
		conn.CloseNow()
		return closedCode(err)
	}
	sc.Close()
	return ""
}

// dial opens a byte stream from inside the node.
func (w *World) dial(ctx context.Context, r *request) string {
	conn, err := r.node.srv.Dial(ctx, r.host, relay.Target{Service: "raw"})
	if err != nil {
		if r.node.isDead() {
			return lostConnection
		}
		return relay.Describe(err).Code
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	defer conn.Close()
	if err := w.bytes(ctx, r, conn); err != nil {
		if r.node.isDead() {
			return lostConnection
		}
		return broken
	}
	return ""
}

// bytes sends a stream its bytes in pieces, and reads their echo; then ends its
// direction, and reads the other's end.
func (w *World) bytes(ctx context.Context, r *request, c net.Conn) error {
	a := r.ask
	first := fmt.Sprintf("sim~%s~\n", a.ID)
	if _, err := c.Write([]byte(first)); err != nil {
		_, err = io.Copy(io.Discard, c) // how it has ended
		return orBroken(err)
	}
	piece := max(1, a.Body/max(1, a.Chunks))
	got := make([]byte, piece)
	for at := 0; at+piece <= a.Body; at += piece {
		if _, err := c.Write(patterned(a.ID, at, piece)); err != nil {
			_, err = io.Copy(io.Discard, c)
			return orBroken(err)
		}
		n, err := io.ReadFull(c, got)
		if wrong := differs(a.ID, at, got[:n]); wrong >= 0 {
			w.tr.violated("I4 bytes", "%s: byte %d of the stream is not what was sent", a.ID, wrong)
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			w.tr.violated("I4 bytes", "%s: the stream ended cleanly after %d bytes, of which %d were sent", a.ID, at+n, at+piece)
			return nil
		}
		if err != nil {
			return err
		}
		r.opened.Store(true)
		pause(ctx, a.Gap)
	}
	if cw, ok := c.(interface{ CloseWrite() error }); ok {
		if err := cw.CloseWrite(); err != nil {
			_, err = io.Copy(io.Discard, c)
			return orBroken(err)
		}
		rest, err := io.ReadAll(c)
		if err == nil && len(rest) > 0 {
			w.tr.violated("I4 bytes", "%s: %d bytes came that nobody had sent", a.ID, len(rest))
		}
		return err
	}
	return nil
}

var errBroken = errors.New("sim: a write failed on a stream that had ended cleanly")

func orBroken(err error) error {
	if err == nil {
		return errBroken
	}
	return err
}
