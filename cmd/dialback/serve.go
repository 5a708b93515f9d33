package main

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/store/memory"
)

// drainTime is all that a drain may take.
const drainTime = 20 * time.Second

// serve runs a relay until ctx ends, then drains it.
func serve(ctx context.Context, args []string) error {
	f := newFlags("serve")
	listen := f.String("listen", "127.0.0.1:8080", "the `address` to listen at")
	storeURL := f.String("store", "memory", "where sockets are remembered: memory")
	log, err := f.parse(args)
	if err != nil {
		return err
	}
	if *storeURL != "memory" {
		return fmt.Errorf("%w: --store: only memory is known", errUsage)
	}
	authorize := relay.AllowAll
	if *f.token != "" {
		authorize = sharedToken(*f.token)
	}
	srv, err := relay.New(relay.Config{
		Store: memory.New(), AuthorizeHost: authorize, AuthorizeClient: authorize, Logger: log,
	})
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", *listen)
	if err != nil {
		srv.Close()
		return err
	}
	log.Info("listening", "address", ln.Addr().String())
	hs := &http.Server{Handler: srv, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	failed := make(chan error, 1)
	go func() { failed <- hs.Serve(ln) }()
	select {
	case err := <-failed:
		srv.Close()
		return err
	case <-ctx.Done():
	}
	// The relay first: the HTTP server must go on accepting dial-backs.
	dctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime-2*time.Second)
	defer cancel()
	if err := srv.Shutdown(dctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	hctx, hcancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer hcancel()
	if hs.Shutdown(hctx) != nil {
		hs.Close()
	}
	return nil
}

// sharedToken lets in whoever has the one token of this small program.
func sharedToken(token string) relay.AuthorizeFunc {
	return func(_ context.Context, r *http.Request, _ string) (relay.Identity, error) {
		got := relay.Credential(r)
		switch {
		case got == "":
			return relay.Identity{}, relay.Deny(relay.ErrUnauthorized, "a token is required")
		case subtle.ConstantTimeCompare([]byte(got), []byte(token)) != 1:
			return relay.Identity{}, relay.Deny(relay.ErrUnauthorized, "wrong token")
		}
		return relay.Identity{}, nil
	}
}
