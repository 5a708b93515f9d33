package bench_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/store/memory"
)

// The hosts of the relay: one forwards to the service, the other answers in its
// own process.
const (
	forwardHost = "forward"
	ownHost     = "own"
)

// runPart plays the part of that name until standard input ends.
func runPart(name string) error {
	addrs := strings.Fields(os.Getenv(addrsEnv))
	switch name {
	case "service":
		return runService()
	case "hop":
		return runHop(addrs[0])
	case "relay":
		return profiled(name, runRelay)
	case "agent-forward":
		return profiled(name, func() error { return runAgent(addrs[0], forwardHost, forwardServices(addrs[1], addrs[2])) })
	case "agent-own":
		return profiled(name, func() error { return runAgent(addrs[0], ownHost, ownServices()) })
	case "node":
		return profiled(name, func() error { return runNode(addrs[0], addrs[1]) })
	case "agent-placed":
		return profiled(name, func() error { return runPlaced(addrs, 1) })
	case "far-placed":
		return runPlaced(addrs, farCount)
	case "far-hosts":
		return runFarHosts(addrs[0], addrs[1], addrs[2])
	case "delay":
		return runDelay(addrs)
	case "hosts":
		return runHosts(addrs[0])
	}
	return fmt.Errorf("no such part")
}

// profiled runs f, under a CPU profile if one is asked for.
func profiled(name string, f func() error) error {
	dir := os.Getenv(profileEnv)
	if dir == "" {
		return f()
	}
	out, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s.%d.cpu.pprof", name, os.Getpid())))
	if err != nil {
		return err
	}
	defer out.Close()
	if err := pprof.StartCPUProfile(out); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return f()
}

// listen serves h on a loopback port of its own and returns the address.
func listen(h http.Handler) (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go serve(ln, h)
	return ln.Addr().String(), nil
}

func serve(ln net.Listener, h http.Handler) {
	fmt.Fprintln(os.Stderr, "bench: server ended:", http.Serve(ln, h))
}

// runService is what a host has behind it.
func runService() error {
	web, err := listen(serviceHandler())
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go serveGreeting(ln)
	return wait(web, ln.Addr().String())
}

// runHop is one plain reverse proxy before the service. Full duplex keeps
// net/http from truncating answers to POSTs.
func runHop(service string) error {
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: service}) },
		Transport: &http.Transport{MaxIdleConnsPerHost: 512, DisableCompression: true},
	}
	addr, err := listen(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			panic(err)
		}
		proxy.ServeHTTP(w, r)
	}))
	if err != nil {
		return err
	}
	return wait(addr)
}

func runRelay() error {
	srv, err := relay.New(relay.Config{Store: memory.New(), AuthorizeHost: relay.AllowAll, AuthorizeClient: relay.AllowAll})
	if err != nil {
		return err
	}
	defer srv.Close()
	addr, err := listen(srv)
	if err != nil {
		return err
	}
	return wait(addr)
}

// forwardServices forward to the service process.
func forwardServices(web, greeting string) map[string]agent.Handler {
	return map[string]agent.Handler{"": agent.ForwardHTTP("http://" + web), "greeting": agent.ForwardTCP(greeting)}
}

// ownServices answer in the agent's process.
func ownServices() map[string]agent.Handler {
	return map[string]agent.Handler{"": agent.HTTP(serviceHandler()), "greeting": agent.Raw(greetStream)}
}

func runAgent(relayAddr, hostID string, services map[string]agent.Handler) error {
	stop, err := startAgent(relayAddr, hostID, services)
	if err != nil {
		return err
	}
	defer stop()
	return wait(relayAddr)
}
