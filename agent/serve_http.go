package agent

import (
	"context"
	"log/slog"
	"net"
	"net/http"

	"github.com/dialback/dialback/transport"
)

// HTTP is an HTTP service that h answers. One stream carries many requests, one
// after the other; the relay decides how long an idle one is kept. Full duplex
// is enabled: h may answer before it has read the request's body. The
// request's context ends when its client leaves, also while nobody reads the
// body, as long as no more than 32 KiB of it wait; that of a handler that has
// hijacked the stream ends when it returns. StreamInfoFrom works on it. A panic
// of h breaks the answer off.
func HTTP(h http.Handler) Handler { return &httpHandler{h} }

type httpHandler struct{ handler http.Handler }

func (h *httpHandler) check() error {
	if h.handler == nil {
		return errNilHandler
	}
	return nil
}

func (h *httpHandler) proto() string { return transport.ProtoHTTP }

func (h *httpHandler) start(e env) service {
	s := &httpService{env: e, handler: h.handler, streams: newAcceptQueue(0)}
	// No timeouts: only the relay closes an idle stream, so that no request
	// can cross with a close.
	s.server = &http.Server{
		Handler:     s,
		ConnState:   s.connState,
		BaseContext: func(net.Listener) context.Context { return e.ctx },
		ConnContext: s.connContext,
		ErrorLog:    slog.NewLogLogger(e.log.Handler(), slog.LevelWarn),
	}
	e.tasks.Add(1)
	go s.run()
	return s
}

// httpService is an http.Server whose connections are streams.
type httpService struct {
	env
	// Immutable after start.
	handler http.Handler
	streams *acceptQueue
	server  *http.Server
}

func (s *httpService) run() {
	defer s.tasks.Done()
	_ = s.server.Serve(s.streams) // until stop
}

func (s *httpService) open(context.Context, StreamInfo) (endpoint, error) { return s, nil }
func (s *httpService) abandon()                                           {}

// serve hands the stream to the server, which closes it.
func (s *httpService) serve(socket *dataSocket) {
	s.tasks.Add(1) // until connState sees its end
	if !s.streams.push(newStream(socket)) {
		s.tasks.Done()
		socket.closeWith(transport.CloseGoingAway, "agent stopping")
	}
}

// connContext makes the context of a stream's requests. net/http ends it with
// the stream only if it reads, and while a handler leaves a request's body
// nobody does.
func (s *httpService) connContext(ctx context.Context, c net.Conn) context.Context {
	stream := c.(*Stream) // of streams
	ctx, stream.cancel = context.WithCancel(context.WithValue(ctx, streamInfoKey{}, stream))
	s.tasks.Add(1)
	go s.watch(stream)
	return ctx
}

// watch ends the context of a stream's requests with the stream. A handler that
// has taken the stream over sees its end by itself, and may have bytes left to
// work on: its context ends when it returns.
func (s *httpService) watch(stream *Stream) {
	defer s.tasks.Done()
	<-stream.Conn().Done()
	if !stream.hijacked.Load() {
		stream.cancel()
	}
}

func (s *httpService) connState(c net.Conn, state http.ConnState) {
	if stream, ok := c.(*Stream); ok && state == http.StateHijacked {
		stream.hijacked.Store(true)
	}
	if state == http.StateClosed || state == http.StateHijacked {
		s.tasks.Done()
	}
}

func (s *httpService) stop() { _ = s.server.Close() }

// ServeHTTP wraps the handler.
func (s *httpService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Without it net/http reads the rest of a request's body before it sends
	// an answer, and cuts answers short.
	_ = http.NewResponseController(w).EnableFullDuplex()
	stream := r.Context().Value(streamInfoKey{}).(*Stream)
	defer func() {
		if stream.hijacked.Load() {
			stream.cancel()
		}
		if p := recover(); p != nil {
			// net/http closes the stream, but that would be a clean end.
			stream.CloseWith(transport.CloseInternal, "answer broken off")
			panic(p)
		}
	}()
	body := ownBody(w, r)
	s.handler.ServeHTTP(w, r)
	if body != nil {
		body.drop(w, r)
	}
}
