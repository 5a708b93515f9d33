// Quickstart shows Dialback in one process: a relay, a host behind it, and a
// client that reaches the host through the relay. It says what it does, step by
// step, and ends after a few seconds:
//
//	go run ./examples/quickstart
//
// With --serve it stays up instead, and prints a URL to open in a browser.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

func main() {
	serve := flag.Bool("serve", false, "stay up, for a browser")
	listen := flag.String("listen", "127.0.0.1:0", "the `address` of the relay; port 0 is any free one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *listen, *serve); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// run is the program: the tour, or a relay and a host that stay until ctx ends.
func run(ctx context.Context, out io.Writer, listen string, serve bool) error {
	r, err := startRelay(listen)
	if err != nil {
		return err
	}
	defer r.stop()
	if !serve {
		return (&tour{out: out, relay: r}).run(ctx)
	}
	h, err := startHost(ctx, r.url, "laptop", nil)
	if err != nil {
		return err
	}
	defer h.stop()
	fmt.Fprintf(out, "Open %s/hosts/%s/ in a browser. Control-C ends this.\n", r.url, hostID)
	<-ctx.Done()
	return nil
}
