// Embed shows a relay inside a server that exists already: behind its
// middleware, with its own tokens, its routes and its timeouts. Hosts are
// reached on subdomains, and SIGTERM drains.
//
//	export EMBED_KEY=$(openssl rand -hex 32)
//	go run ./examples/embed --listen 127.0.0.1:8080 --domain localhost
//
// In a second terminal, with the same EMBED_KEY, a host:
//
//	go run ./cmd/dialback host --relay http://127.0.0.1:8080/relay --id laptop --to http://127.0.0.1:3000 \
//	  --token "$(go run ./examples/embed --mint host --hosts laptop)"
//
// And a client:
//
//	curl -H "Authorization: Bearer $(go run ./examples/embed --mint client --hosts laptop)" http://laptop.localhost:8080/
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := program(); err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		os.Exit(1)
	}
}

func program() error {
	listen := flag.String("listen", "127.0.0.1:8080", "the `address` to listen at")
	domain := flag.String("domain", "localhost", "hosts are served at HOST.`DOMAIN`")
	mint := flag.String("mint", "", "print a token for a `role`, host or client, and exit")
	hosts := flag.String("hosts", "", "the `names` of the hosts that the token is for, with commas between")
	life := flag.Duration("for", time.Hour, "the life of the token")
	flag.Parse()
	key := []byte(os.Getenv("EMBED_KEY"))
	if len(key) < 32 {
		return errors.New("EMBED_KEY must have 32 characters at least")
	}
	if *mint != "" {
		c := claims{Subject: os.Getenv("USER"), Role: *mint, Hosts: strings.Split(*hosts, ","), Expires: time.Now().Add(*life).Unix()}
		fmt.Println(c.sign(key))
		return nil
	}
	ln, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a, err := newApp(config{Key: key, Domain: *domain, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		ln.Close()
		return err
	}
	return a.run(ctx, ln)
}
