package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/dialback/dialback/transport"
)

// Handler serves the streams of one service. ForwardTCP, ForwardHTTP, HTTP and
// Raw make one; it may be given to several agents.
type Handler interface {
	// check says what is wrong with the handler; New returns it.
	check() error
	// proto is what its streams carry: transport.ProtoHTTP or ProtoRaw.
	proto() string
	// start makes what one Run of an agent needs.
	start(env) service
}

// env is what a Run gives its services.
type env struct {
	ctx          context.Context // ends with Run
	log          *slog.Logger
	dialTimeout  time.Duration
	closeTimeout time.Duration
	tasks        *sync.WaitGroup // Run waits for it
}

// service is a handler at work.
type service interface {
	// open gets ready for one stream, so that the relay hears of a service
	// that is down before any byte flows. Of an error that is not a *refusal
	// the relay is told no more than that the service failed.
	open(context.Context, StreamInfo) (endpoint, error)
	// stop is called once, when Run ends and all streams have been closed.
	stop()
}

// endpoint is a service that is ready for one stream. One of serve and abandon
// is called, once.
type endpoint interface {
	// serve takes the stream over, and closes it in the end; it may return
	// before that.
	serve(s *dataSocket)
	// abandon: there is no stream after all.
	abandon()
}

var errNilHandler = errors.New("no handler")

// Raw is a service of bytes: serve is called once per stream, in a goroutine of
// its own, and the stream is closed with 1000 when it returns. A panic in it
// closes the stream with 1011 and is logged. To end a stream in another way,
// call CloseWith before returning. ctx ends with Run, and has the StreamInfo.
func Raw(serve func(ctx context.Context, s *Stream)) Handler { return rawHandler(serve) }

type rawHandler func(context.Context, *Stream)

func (h rawHandler) check() error {
	if h == nil {
		return errNilHandler
	}
	return nil
}

func (h rawHandler) proto() string       { return transport.ProtoRaw }
func (h rawHandler) start(e env) service { return &rawService{env: e, handler: h} }

// rawService is its own endpoint: it has nothing to get ready.
type rawService struct {
	env
	handler rawHandler
}

func (s *rawService) open(context.Context, StreamInfo) (endpoint, error) { return s, nil }
func (s *rawService) stop()                                              {}
func (s *rawService) abandon()                                           {}

func (s *rawService) serve(socket *dataSocket) {
	stream := newStream(socket)
	defer stream.Close()
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("handler panicked", "service", socket.info.Service, "panic", p)
			stream.CloseWith(transport.CloseInternal, "handler panicked")
		}
	}()
	s.handler(context.WithValue(s.ctx, streamInfoKey{}, socket.info), stream)
}
