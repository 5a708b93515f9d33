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
)

const (
	drainTime = 20 * time.Second // all that a drain may take
	closeTime = 3 * time.Second  // of it, for closing what is left
)

// serve runs a relay until ctx ends, then drains it.
func serve(ctx context.Context, args []string) error {
	f := newFlags("serve")
	listen := f.String("listen", "127.0.0.1:8080", "the `address` to listen at")
	nf := newNodeFlags(f)
	log, err := f.parse(args)
	if err != nil {
		return err
	}
	node, err := nf.node()
	if err != nil {
		return err
	}
	st, closeStore, err := nf.open(log)
	if err != nil {
		return err
	}
	defer closeStore()
	authorize := relay.AllowAll
	if *f.token != "" {
		authorize = sharedToken(*f.token)
	}
	srv, err := relay.New(relay.Config{
		Store: st, Node: node, AuthorizeHost: authorize, AuthorizeClient: authorize, Logger: log,
	})
	if err != nil {
		return fmt.Errorf("%w: %v", errUsage, err)
	}
	ln, err := net.Listen("tcp", *listen)
	if err != nil {
		srv.Close()
		return err
	}
	outliveReaders()
	fmt.Printf("listening on http://%s\n", ln.Addr())
	hs := &http.Server{Handler: srv, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	failed := make(chan error, 1)
	go func() { failed <- hs.Serve(ln) }()
	select {
	case err := <-failed:
		srv.Close()
		return err
	case <-ctx.Done():
	}
	fmt.Println("draining")
	return drain(context.WithoutCancel(ctx), srv, hs)
}

// drain ends relay and HTTP server, in this order: the HTTP server must go on
// accepting dial-backs of streams that are being opened. A Store that hangs holds
// up a relay that closes, after all have been told; that goes on when drain has
// returned, and needs no end but the process's.
func drain(ctx context.Context, srv *relay.Server, hs *http.Server) error {
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	rctx, rcancel := context.WithTimeout(ctx, drainTime-closeTime)
	defer rcancel()
	closed := make(chan error, 1)
	go func() { closed <- srv.Shutdown(rctx) }()
	select {
	case err := <-closed:
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	case <-ctx.Done():
	}
	if hs.Shutdown(ctx) != nil {
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
