package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/store/redis"
)

// A node is this program with the word nodeArg, its ID and the URL of Redis as
// arguments, and the key that all nodes share in the environment.
const (
	nodeArg = "node"
	keyVar  = "CLUSTER_KEY"
)

func isNode() bool { return len(os.Args) == 4 && os.Args[1] == nodeArg }

// runNode is a relay node: it prints its URL and serves until its standard input
// ends, which it does with the process that started the node. It is all that
// differs from one relay alone: a Store that is shared, and a relay.Node.
func runNode() error {
	client, err := redis.Open(os.Args[3])
	if err != nil {
		return err
	}
	defer client.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	url := "http://" + ln.Addr().String()
	srv, err := relay.New(relay.Config{
		Store:           redis.New(client, nil),
		Node:            relay.Node{ID: os.Args[2], URL: url, Key: []byte(os.Getenv(keyVar))},
		AuthorizeHost:   relay.AllowAll, // the example lets everybody in
		AuthorizeClient: relay.AllowAll,
	})
	if err != nil {
		return err
	}
	defer srv.Close() // a node that others use drains first: see cmd/dialback
	hs := &http.Server{Handler: srv, ReadHeaderTimeout: 10 * time.Second}
	defer hs.Close()
	go hs.Serve(ln)
	fmt.Println(url)
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return errors.New("standard input failed")
	}
	return nil
}
