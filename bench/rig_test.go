package bench_test

import (
	"net/http"
	"sync"
	"testing"
)

// rig is all processes of the path: service, hop, relay and the two agents.
type rig struct {
	parts  []*part
	direct *path
	hop    *path
	hosts  map[string]*path // by the ID of the host
}

// path is one way to the service.
type path struct {
	name     string
	url      string // of the service's root
	greeting string // of the WebSocket that greets
	client   *http.Client
}

func newPath(name, url, greeting string) *path {
	return &path{name: name, url: url, greeting: greeting, client: &http.Client{
		Timeout:   turnLimit,
		Transport: &http.Transport{MaxIdleConnsPerHost: 512, DisableCompression: true},
	}}
}

// shared is the rig of all benchmarks of this process, started by the first.
var shared struct {
	once sync.Once
	rig  *rig
	err  error
}

func sharedRig(b *testing.B) *rig {
	b.Helper()
	shared.once.Do(func() { shared.rig, shared.err = startRig() })
	if shared.err != nil {
		b.Fatal(shared.err)
	}
	return shared.rig
}

func stopShared() {
	if shared.rig != nil {
		shared.rig.stop()
	}
}

func startRig() (*rig, error) {
	g := &rig{}
	start := func(name string, addrs ...string) (*part, error) {
		p, err := startPart(name, addrs)
		if err != nil {
			g.stop()
			return nil, err
		}
		g.parts = append(g.parts, p)
		return p, nil
	}
	service, err := start("service")
	if err != nil {
		return nil, err
	}
	hop, err := start("hop", service.addrs[0])
	if err != nil {
		return nil, err
	}
	relay, err := start("relay")
	if err != nil {
		return nil, err
	}
	if _, err := start("agent-forward", relay.addrs[0], service.addrs[0], service.addrs[1]); err != nil {
		return nil, err
	}
	if _, err := start("agent-own", relay.addrs[0]); err != nil {
		return nil, err
	}
	direct, hopURL, relayURL := "http://"+service.addrs[0], "http://"+hop.addrs[0], "http://"+relay.addrs[0]
	g.direct = newPath("direct", direct, direct+"/ws/greet")
	g.hop = newPath("hop", hopURL, hopURL+"/ws/greet")
	g.hosts = make(map[string]*path)
	for _, id := range []string{forwardHost, ownHost} {
		g.hosts[id] = newPath("relay", relayURL+"/hosts/"+id, relayURL+"/connect/"+id+"?service=greeting")
	}
	return g, nil
}

// stop ends the processes, the last one first.
func (g *rig) stop() {
	for i := len(g.parts) - 1; i >= 0; i-- {
		g.parts[i].stop()
	}
	g.parts = nil
}
