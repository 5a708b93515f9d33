package agent_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"

	"github.com/dialback/dialback/agent"
)

// A web server that needs no port: clients reach it through the relay.
func ExampleListen() {
	ln, err := agent.Listen(context.Background(), agent.Config{
		RelayURL: "wss://relay.example.com/relay",
		HostID:   "host-1",
		Token:    func(context.Context) (string, error) { return os.Getenv("RELAY_TOKEN"), nil },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer ln.Close()
	log.Print(http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "hello from behind the NAT")
	})))
}

// What already listens on this machine, by name.
func ExampleNew() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	a, err := agent.New(agent.Config{
		RelayURL: "wss://relay.example.com/relay",
		HostID:   "host-1",
		Token:    func(context.Context) (string, error) { return os.Getenv("RELAY_TOKEN"), nil },
		Services: map[string]agent.Handler{
			"":    agent.ForwardHTTP("http://127.0.0.1:3000"),
			"ssh": agent.ForwardTCP("127.0.0.1:22"),
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Print(a.Run(ctx))
}
