package bench_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/store/memory"
	"github.com/dialback/dialback/transport"
)

const leakHost = "leaky"

// leakWorld is a relay and a host in this process, over loopback TCP.
type leakWorld struct {
	relay  *relay.Server
	store  *memory.Store
	agent  *agent.Agent
	url    string
	client *http.Client
	stop   func() // ends all of it; may be called twice

	// Owned by the test's goroutine: see steady.
	last census
	same int
}

func newLeakWorld(t *testing.T) *leakWorld {
	t.Helper()
	w := &leakWorld{store: memory.New(), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: leakAtOnce, DisableCompression: true}}}
	srv, err := relay.New(relay.Config{
		Store: w.store, AuthorizeHost: relay.AllowAll, AuthorizeClient: relay.AllowAll,
		// A slow machine must not look like an outage of the Store, which leaves
		// rows behind until they expire.
		StoreTimeout: 30 * time.Second,
		PoolIdle:     1500 * time.Millisecond, // an idle stream is no leak
	})
	if err != nil {
		t.Fatal(err)
	}
	w.relay = srv
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.url = "http://" + ln.Addr().String()
	hs := &http.Server{Handler: srv}
	served := make(chan error, 1)
	go func() { served <- hs.Serve(ln) }()

	online := make(chan struct{})
	var once sync.Once
	a, err := agent.New(agent.Config{
		RelayURL: w.url, HostID: leakHost, Services: leakServices(),
		Hooks: agent.Hooks{Online: func(agent.Online) { once.Do(func() { close(online) }) }},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.agent = a
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- a.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		<-ran
		if err := srv.Close(); err != nil {
			t.Errorf("relay.Close: %v", err)
		}
		_ = hs.Close()
		<-served
		w.client.CloseIdleConnections()
	})
	t.Cleanup(w.stop)
	select {
	case <-online:
	case <-time.After(20 * time.Second):
		t.Fatal("the host does not get online")
	}
	return w
}

// leakServices answer whole, half, and not at all.
func leakServices() map[string]agent.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", serviceHandler())
	mux.HandleFunc("GET /half", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1024")
		_, _ = w.Write(pattern[:512])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	mux.HandleFunc("GET /endless", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(pattern[:4<<10]); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("GET /stalling", func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(pattern[:smallSize])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("GET /never", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	return map[string]agent.Handler{
		"":     agent.HTTP(mux),
		"echo": agent.Raw(func(_ context.Context, s *agent.Stream) { _, _ = io.Copy(s, s) }),
		"cut": agent.Raw(func(_ context.Context, s *agent.Stream) {
			_, _ = s.Read(make([]byte, 1))
			s.CloseWith(transport.CloseInternal, "cut")
		}),
		"mute": agent.Raw(func(_ context.Context, s *agent.Stream) { s.CloseWith(transport.CloseInternal, "mute") }),
	}
}
