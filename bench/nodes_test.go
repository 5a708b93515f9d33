package bench_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/dialback/dialback/internal/redistest"
)

// placement is a host whose control socket is on node 0, and where the two ends
// of its streams meet.
type placement struct {
	name     string
	client   int // the node of its clients, which is the node that waits
	dialBack int // the node where its dial-backs land
}

// host is the ID of one of its hosts.
func (p placement) host(i int) string { return fmt.Sprint(p.name, "-", i) }

// path is the way from its clients' node to a host.
func (p placement) path(nodes []string, i int) *path {
	url := "http://" + nodes[p.client]
	return newPath(p.name, url+"/hosts/"+p.host(i), url+"/connect/"+p.host(i)+"?service=greeting")
}

// placements begins with the one that the others are compared with.
var placements = []placement{
	{"one-node", 0, 0},
	{"other-node", 1, 1}, // the dial signal crosses
	{"third-node", 1, 2}, // and the data socket too: one hop
}

// BenchmarkOpenAcross is BenchmarkOpen, of streams whose ends are on different
// nodes, against all on one node.
func BenchmarkOpenAcross(b *testing.B) {
	startNodes(b).compare(b, "µs", openTime)
}

// BenchmarkGetAcross is small GETs to such hosts. The streams to the host are
// kept at the client's node, so most requests open none.
func BenchmarkGetAcross(b *testing.B) {
	g := startNodes(b)
	for _, c := range []int{1, 16} {
		b.Run(fmt.Sprintf("c=%d", c), func(b *testing.B) {
			workers := newWorkers(c, smallSize)
			g.compare(b, "req/s", func(p *path) (float64, error) {
				return load(workers, func(w *worker) error {
					return fetch(p, http.MethodGet, "/small", nil, pattern[:smallSize], w.buf)
				})
			})
		})
	}
}

// nodesRig is three nodes on one Redis and a process that has a host for each
// of placements.
type nodesRig struct {
	nodes []*part
	paths []*path // of placements
}

// startNodes starts the processes. They end with the benchmark.
func startNodes(b *testing.B) *nodesRig {
	b.Helper()
	g := &nodesRig{}
	addrs := g.start(b)
	startPartOf(b, "agent-placed", addrs...)
	for _, p := range placements {
		path := p.path(addrs, 0)
		g.paths = append(g.paths, path)
		if _, err := openTime(path); err != nil {
			b.Fatalf("%s: %v", p.name, err)
		}
		g.checkHops(b, p.dialBack != p.client)
	}
	return g
}

// start starts the nodes and returns their addresses.
func (g *nodesRig) start(b *testing.B) (addrs []string) {
	b.Helper()
	redis := redistest.Start(b)
	redisURL := fmt.Sprintf("unix://%s?read_timeout=%v&write_timeout=%[2]v&pool_timeout=%[2]v", redis.Addr, patient)
	for i := range 3 {
		n := startPartOf(b, "node", nodeID(i), redisURL)
		g.nodes = append(g.nodes, n)
		addrs = append(addrs, n.addrs[0])
	}
	return addrs
}

// compare is like the function of that name, for placements: x-one-node is the
// figure of the other node and of the third over that of one node.
func (g *nodesRig) compare(b *testing.B, unit string, turn func(*path) (float64, error)) {
	b.Helper()
	values := interleave(b, g.paths, unit, turn)
	for i, name := range []string{"other", "third"} {
		reportRatios(b, ratios(values[i+1], values[0]), name+"-x-one-node")
	}
	g.checkHops(b, true)
}

// checkHops checks that dial-backs landed where placements say: those of the
// third host on node 2, if it has been opened, and all others where they are
// waited for.
func (g *nodesRig) checkHops(b *testing.B, third bool) {
	b.Helper()
	orders := []string{"hops none", "hops none", "hops none"}
	if third {
		orders[2] = "hops some"
	}
	for i, order := range orders {
		if err := g.nodes[i].do("%s", order); err != nil {
			b.Fatalf("dial-backs do not land where they should: %v", err)
		}
	}
}
