package bench_test

import (
	"testing"
	"time"
)

// BenchmarkFarAcross is BenchmarkFar of hosts whose clients, control socket and
// dial-backs are on different nodes. The way between nodes is short. Beside the
// round trips of each placement it reports the ratio to those of all on one
// node, of the medians.
func BenchmarkFarAcross(b *testing.B) {
	g := startFarNodes(b)
	b.Run("open", func(b *testing.B) { g.compare(b, g.opens) })
	b.Run("idle", func(b *testing.B) { g.compare(b, g.idleGets) })
}

// farNodesRig is three nodes with far hosts for each of placements.
type farNodesRig struct {
	nodesRig
	hosts [][]*path // by placement
	trip  *farTrips
}

// startFarNodes starts the processes. They end with the benchmark.
func startFarNodes(b *testing.B) *farNodesRig {
	b.Helper()
	g := &farNodesRig{}
	addrs := g.start(b)
	delay := startPartOf(b, "delay", addrs...)
	g.trip = newFarTrips(b, delay)
	startPartOf(b, "far-placed", delay.addrs[:len(addrs)]...)
	for _, p := range placements {
		var paths []*path
		for i := range farCount {
			path := p.path(addrs, i)
			_, err := openOnce(path)
			if err == nil {
				_, err = farGet(path)
			}
			if err != nil {
				b.Fatalf("host %s: %v", p.host(i), err)
			}
			paths = append(paths, path)
		}
		g.hosts = append(g.hosts, paths)
		g.checkHops(b, p.dialBack != p.client)
	}
	return g
}

// compare runs round, which gives samples by placement in milliseconds and
// measures round trips beside them.
func (g *farNodesRig) compare(b *testing.B, round func() ([][]float64, error)) {
	b.Helper()
	samples := make([][]float64, len(placements))
	g.trip.took = nil
	for b.Loop() {
		ms, err := round()
		if err != nil {
			b.Fatal(err)
		}
		for k := range ms {
			samples[k] = append(samples[k], ms[k]...)
		}
	}
	g.checkHops(b, true)
	trip := median(g.trip.took)
	b.ReportMetric(0, "ns/op") // of a round: says nothing
	b.ReportMetric(trip, "round-trip-ms")
	for k, p := range placements {
		b.ReportMetric(median(samples[k])/trip, p.name+"-round-trips")
		if k > 0 {
			b.ReportMetric(median(samples[k])/median(samples[0]), p.name+"-x-one-node")
		}
	}
}

// opens are the set-up times of streams to one host of each placement in turn.
func (g *farNodesRig) opens() (ms [][]float64, err error) {
	ms = make([][]float64, len(placements))
	for range farCount {
		time.Sleep(farPause)
		for k := range placements {
			took, err := openOnce(g.hosts[k][0])
			if err != nil {
				return nil, err
			}
			ms[k] = append(ms[k], milliseconds(took))
			if err := g.trip.once(); err != nil {
				return nil, err
			}
		}
	}
	return ms, nil
}

// idleGets are the times of one GET to each host, the placements in turn, after
// ten seconds without any.
func (g *farNodesRig) idleGets() (ms [][]float64, err error) {
	ms = make([][]float64, len(placements))
	time.Sleep(farIdle)
	for i := range farCount {
		for k := range placements {
			took, err := farGet(g.hosts[k][i])
			if err != nil {
				return nil, err
			}
			ms[k] = append(ms[k], took)
			if err := g.trip.once(); err != nil {
				return nil, err
			}
		}
	}
	return ms, nil
}
