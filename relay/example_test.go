package relay_test

import (
	"context"
	"crypto/subtle"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/store/memory"
)

// A relay in a web server, a host that it cannot dial, and a client's request.
func Example() {
	srv, err := relay.New(relay.Config{
		Store:           memory.New(),
		AuthorizeHost:   relay.AllowAll, // who may attach as a host
		AuthorizeClient: relay.AllowAll, // who may reach it
	})
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	mux := http.NewServeMux()
	mux.Handle("/relay/", http.StripPrefix("/relay", srv))
	web := httptest.NewServer(mux)
	defer web.Close()

	// On the host's machine, which listens nowhere.
	stop := startHost(web.URL+"/relay", map[string]agent.Handler{
		"": agent.HTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "hello from behind the NAT, %s", r.URL)
		})),
	})
	defer stop()

	resp, err := http.Get(web.URL + "/relay/hosts/laptop/greet?name=Ada")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, string(body), err)
	// Output: 200 hello from behind the NAT, /greet?name=Ada <nil>
}

// startHost runs an agent with the host ID laptop and returns when it is
// online. stop ends it.
func startHost(relayURL string, services map[string]agent.Handler) (stop func()) {
	online := make(chan struct{}, 1)
	host, err := agent.New(agent.Config{
		RelayURL: relayURL,
		HostID:   "laptop",
		Services: services,
		Hooks:    agent.Hooks{Online: func(agent.Online) { online <- struct{}{} }},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = host.Run(ctx) // the error is that of ctx
	}()
	<-online
	return func() {
		cancel()
		<-ended
	}
}

// startRelay runs a relay that lets everybody in.
func startRelay() (srv *relay.Server, url string, stop func()) {
	srv, err := relay.New(relay.Config{Store: memory.New(), AuthorizeHost: relay.AllowAll, AuthorizeClient: relay.AllowAll})
	if err != nil {
		log.Fatal(err)
	}
	web := httptest.NewServer(srv)
	return srv, web.URL, func() {
		srv.Close()
		web.Close()
	}
}

// The embedding program opens a byte stream to a service of a host.
func ExampleServer_Dial() {
	srv, url, stopRelay := startRelay()
	defer stopRelay()
	defer startHost(url, map[string]agent.Handler{
		"echo": agent.Raw(func(_ context.Context, s *agent.Stream) { io.Copy(s, s) }),
	})()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := srv.Dial(ctx, "laptop", relay.Target{Service: "echo"})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "there and back")
	conn.(interface{ CloseWrite() error }).CloseWrite() // no more to come
	answer, err := io.ReadAll(conn)
	fmt.Println(string(answer), err)

	_, err = srv.Dial(ctx, "desktop", relay.Target{Service: "echo"})
	fmt.Println(err)
	// Output:
	// there and back <nil>
	// relay: host offline
}

// The embedding program speaks HTTP with a host.
func ExampleServer_RoundTripper() {
	srv, url, stopRelay := startRelay()
	defer stopRelay()
	defer startHost(url, map[string]agent.Handler{
		"": agent.HTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s %s", r.Method, r.URL)
		})),
	})()

	client := &http.Client{Transport: srv.RoundTripper("laptop", relay.Target{})}
	resp, err := client.Get("http://laptop/status?verbose=1") // the host is the RoundTripper's
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, string(body), err)
	// Output: 200 GET /status?verbose=1 <nil>
}

// What a process does when it is to end.
func ExampleServer_Shutdown() {
	srv, err := relay.New(relay.Config{
		Store: memory.New(), AuthorizeHost: relay.AllowAll, AuthorizeClient: relay.AllowAll,
		DrainNotice: -1, // no load balancer has to notice here
	})
	if err != nil {
		log.Fatal(err)
	}
	web := httptest.NewServer(srv)
	defer web.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	// First the relay: hosts are sent elsewhere, streams may end, and the HTTP
	// server still takes the dial-backs of those that are being opened.
	if err := srv.Shutdown(ctx); err != nil {
		log.Print("streams were cut: ", err)
	}
	resp, err := http.Get(web.URL + "/health")
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	fmt.Println("health:", resp.StatusCode)
	// Then the HTTP server, which would not have waited for hijacked connections.
	if err := web.Config.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("done")
	// Output:
	// health: 503
	// done
}

// Hosts come with a token of their own.
func ExampleConfig_authorizeHost() {
	tokens := map[string]string{"laptop": "correct-horse"} // in a database, hashed
	srv, err := relay.New(relay.Config{
		Store: memory.New(),
		AuthorizeHost: func(_ context.Context, r *http.Request, hostID string) (relay.Identity, error) {
			got, want := relay.Credential(r), tokens[hostID]
			switch {
			case got == "":
				return relay.Identity{}, relay.Deny(relay.ErrUnauthorized, "a token is required")
			case want == "" || subtle.ConstantTimeCompare([]byte(got), []byte(want)) != 1:
				return relay.Identity{}, relay.Deny(relay.ErrForbidden, "not your host")
			}
			return relay.Identity{Subject: hostID, ExpiresAt: time.Now().Add(24 * time.Hour)}, nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()

	for _, token := range []string{"", "wrong"} {
		r := httptest.NewRequest("GET", "/v2/control?hostId=laptop", nil)
		if token != "" {
			r.Header.Set("Dialback-Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		srv.ServeHTTP(w, r)
		fmt.Print(w.Code, " ", w.Body)
	}
	// Output:
	// 401 {"error":{"code":"unauthorized","message":"a token is required"}}
	// 403 {"error":{"code":"forbidden","message":"not your host"}}
}
