package bench_test

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// turnTime is how long a path has the machine to itself: short, so that a slow
// moment of the machine meets all paths.
const turnTime = 150 * time.Millisecond

// eachHost runs bench for the host that forwards to the service and for the one
// that answers in its own process.
func eachHost(b *testing.B, bench func(b *testing.B, g *rig, relay *path)) {
	for _, id := range []string{forwardHost, ownHost} {
		b.Run("host="+id, func(b *testing.B) {
			g := sharedRig(b)
			bench(b, g, g.hosts[id])
		})
	}
}

// compare measures direct, hop and relay in turns and reports the ratios of the
// relay's figure.
func compare(b *testing.B, g *rig, relay *path, unit string, turn func(*path) (float64, error)) {
	b.Helper()
	values := interleave(b, []*path{g.direct, g.hop, relay}, unit, turn)
	b.ReportMetric(median(ratios(values[2], values[0])), "x-direct")
	reportRatios(b, ratios(values[2], values[1]), "x-hop")
}

// interleave gives each path a turn, again and again, each time in another
// order, and reports the medians of what turn measures, in unit. It returns the
// values by path and round. An error of turn fails b.
func interleave(b *testing.B, paths []*path, unit string, turn func(*path) (float64, error)) [][]float64 {
	b.Helper()
	take := func(p *path) float64 {
		v, err := turn(p)
		if err != nil {
			b.Fatalf("%s: %v", p.name, err)
		}
		return v
	}
	for _, p := range paths { // fills the pools of connections
		take(p)
	}
	values := make([][]float64, len(paths))
	for round := 0; b.Loop(); round++ {
		for i := range paths {
			k := (round + i) % len(paths)
			values[k] = append(values[k], take(paths[k]))
		}
	}
	b.ReportMetric(0, "ns/op") // of a round: says nothing
	for k, p := range paths {
		b.ReportMetric(median(values[k]), p.name+"-"+unit)
	}
	return values
}

// reportRatios reports median, least and greatest of the ratios between turns
// of one round.
func reportRatios(b *testing.B, q []float64, name string) {
	b.ReportMetric(median(q), name)
	b.ReportMetric(slices.Min(q), name+"-min")
	b.ReportMetric(slices.Max(q), name+"-max")
}

func ratios(a, b []float64) []float64 {
	q := make([]float64, len(a))
	for i := range a {
		q[i] = a[i] / b[i]
	}
	return q
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// load calls op from c goroutines for turnTime and returns how often it did per
// second, or the first error. Each goroutine has a worker, kept between turns.
func load(workers []*worker, op func(*worker) error) (perSecond float64, err error) {
	var wg sync.WaitGroup
	began := time.Now()
	for _, w := range workers {
		wg.Go(func() { w.run(began.Add(turnTime), op) })
	}
	wg.Wait()
	took := time.Since(began)
	n := 0
	for _, w := range workers {
		if w.err != nil {
			return 0, w.err
		}
		n += w.done
	}
	return float64(n) / took.Seconds(), nil
}

// worker is one of the goroutines of load.
type worker struct {
	buf  []byte
	done int
	err  error
}

func newWorkers(n, bufSize int) []*worker {
	ws := make([]*worker, n)
	for i := range ws {
		ws[i] = &worker{buf: make([]byte, bufSize)}
	}
	return ws
}

func (w *worker) run(until time.Time, op func(*worker) error) {
	w.done = 0
	for w.err == nil && time.Now().Before(until) {
		if w.err = op(w); w.err == nil {
			w.done++
		}
	}
}
