// Customstore runs a relay whose Store is not one of Dialback's: package
// boltstore keeps it in a file, so that the relay still knows its hosts when it
// starts again.
//
//	go run . --db relay.db --listen 127.0.0.1:8080
//
// See boltstore for how such a Store is written.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"go.etcd.io/bbolt"

	"github.com/dialback/dialback/examples/customstore/boltstore"
	"github.com/dialback/dialback/relay"
)

func main() {
	file := flag.String("db", "relay.db", "the `file` to remember hosts in")
	listen := flag.String("listen", "127.0.0.1:8080", "the `address` to listen at")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *file, *listen); err != nil {
		fmt.Fprintln(os.Stderr, "customstore:", err)
		os.Exit(1)
	}
}

// run serves a relay until ctx ends. The relay closes before its Store: it
// detaches its hosts then.
func run(ctx context.Context, out io.Writer, file, listen string) error {
	db, err := bbolt.Open(file, 0o600, &bbolt.Options{Timeout: time.Second}) // the lock of another process
	if err != nil {
		return err
	}
	defer db.Close()
	st, err := boltstore.New(db)
	if err != nil {
		return err
	}
	defer st.Close()
	srv, err := relay.New(relay.Config{
		Store:           st,
		Node:            relay.Node{ID: "relay"}, // the same after a restart
		AuthorizeHost:   relay.AllowAll,          // the example lets everybody in
		AuthorizeClient: relay.AllowAll,
	})
	if err != nil {
		return err
	}
	defer srv.Close()
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "listening on http://%s\n", ln.Addr())
	hs := &http.Server{Handler: srv, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- hs.Serve(ln) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return hs.Close()
	}
}
