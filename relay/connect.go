package relay

import (
	"context"
	"net/http"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/transport"
)

// serveConnect serves a byte stream: the client's WebSocket is accepted first,
// so that a browser can read the close code of a failure.
func (s *Server) serveConnect(w http.ResponseWriter, r *http.Request, hostID string) {
	service := r.URL.Query().Get("service")
	r, id, err := s.authorize(s.cfg.AuthorizeClient, r, hostID)
	if err != nil {
		s.deny(w, r, hostID, err)
		return
	}
	if !isWebSocket(r) {
		s.writeError(w, r, hostID, badRequest("/connect is a WebSocket"))
		return
	}
	client, err := s.acceptWS(w, r, firstSubprotocol(r))
	if err != nil {
		return
	}
	// The handler returns; the stream lives on in its own goroutine.
	if !s.spawn(func() { s.connect(client, hostID, Target{Service: service}, id) }) {
		client.Close(transport.CloseRestart, "node is restarting")
	}
}

// connect runs one byte stream of an accepted client.
func (s *Server) connect(client transport.Conn, hostID string, t Target, id Identity) {
	hub := s.registry.acquire(hostID)
	defer s.registry.release(hub)
	err := s.connectTo(client, hub, t, id)
	if err != nil {
		f := s.report(s.ctx, hostID, err)
		client.Close(f.Close, f.Message)
	}
	<-client.Done()
}

func (s *Server) connectTo(client transport.Conn, hub *hub, t Target, id Identity) error {
	st, err := s.begin(s.ctx, hub, t, id)
	if err != nil {
		return err
	}
	defer st.finish()
	first := newAheadRead()
	watch := func() { // a client that leaves ends the open
		first.settle(client.Reader())
		if first.err != nil {
			st.cancel(errClientGone)
		}
	}
	if !s.spawn(watch) {
		return ErrClosed
	}
	data, err := s.open(st.ctx, hub, st.id, rawSpec(t))
	if err != nil {
		return err
	}
	st.opened(data.att)
	sp := &splice{srv: s, st: st, client: &readAhead{client, first}, host: data.conn, bytes: true}
	sp.run()
	return nil
}

// rawSpec asks for a byte stream, which v2 hosts do not have.
func rawSpec(t Target) chooseSpec {
	return func(att store.Attachment) (dialSpec, error) {
		if att.Proto < 3 {
			return dialSpec{}, ErrHostV2
		}
		return dialSpec{kind: transport.KindTCP, service: t.Service, proto: transport.ProtoRaw}, nil
	}
}

// firstSubprotocol is the first one that the client offers: a dial cannot ask
// the host.
func firstSubprotocol(r *http.Request) string {
	for _, line := range r.Header["Sec-Websocket-Protocol"] {
		for _, p := range splitList(line) {
			return p
		}
	}
	return ""
}

// openContext is the context of an open that ends when the stream is aborted,
// and when the client of r leaves; r's own context ends with its handler, and
// the stream may live longer.
func openContext(st *stream, r *http.Request) (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(st.ctx)
	stop := context.AfterFunc(r.Context(), func() { cancel(errClientGone) })
	return ctx, func() { stop(); cancel(nil) }
}
