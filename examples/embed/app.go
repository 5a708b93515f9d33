package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/store/memory"
)

// drainTimeout is how long streams may go on after SIGTERM.
const drainTimeout = 30 * time.Second

// config is what an app needs.
type config struct {
	Key    []byte // signs tokens
	Domain string // hosts are served below it
	Log    *slog.Logger
}

// app is an existing server with a relay in it.
type app struct {
	cfg   config
	relay *relay.Server
	http  *http.Server
	ready atomic.Bool
}

func newApp(cfg config) (*app, error) {
	a := &app{cfg: cfg}
	var err error
	a.relay, err = relay.New(relay.Config{
		Store:           memory.New(), // several nodes share a store/redis instead
		AuthorizeHost:   a.authorizeHost,
		AuthorizeClient: a.authorizeClient,
		PrivateCookies:  []string{sessionCookie}, // hosts' pages must not get it
		Logger:          cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	// Timeouts that protect the server's own routes. The relay lifts them for
	// what it serves: streams may be slow, and last.
	a.http = &http.Server{
		Handler:           logRequests(cfg.Log, a.routes()),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       5 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(cfg.Log.Handler(), slog.LevelWarn),
	}
	return a, nil
}

// run serves until ctx ends, and then drains.
func (a *app) run(ctx context.Context, ln net.Listener) error {
	a.ready.Store(true)
	failed := make(chan error, 1)
	go func() { failed <- a.http.Serve(ln) }()
	select {
	case err := <-failed:
		a.relay.Close()
		return err
	case <-ctx.Done():
	}
	err := a.drain(context.WithoutCancel(ctx))
	<-failed
	return err
}

// drain lets the streams finish. The order matters.
func (a *app) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	// 1. The load balancer sends nothing new here.
	a.ready.Store(false)
	// 2. The relay sends its hosts elsewhere and waits for streams, while the
	// HTTP server still takes the dial-backs of those that are being opened.
	err := a.relay.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		a.cfg.Log.Warn("streams were cut: they did not end in time")
		err = nil
	}
	// 3. The rest. This alone would neither end nor wait for WebSockets.
	hctx, hcancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer hcancel()
	if herr := a.http.Shutdown(hctx); herr != nil {
		return errors.Join(err, a.http.Close())
	}
	return err
}
