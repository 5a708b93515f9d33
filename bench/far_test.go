package bench_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

const (
	farCount = 8                      // samples of a round
	farPause = 500 * time.Millisecond // between streams: spares are back after 125 ms
	farIdle  = 10 * time.Second
)

// BenchmarkFar is what the way to a host costs that is a round trip of 50 ms
// away: a new stream to its first byte and a GET after ten seconds of idleness,
// both to a host that is in use, and for comparison the first GET to an agent
// that has just come.
//
// The unit is the round trip of a byte over the same proxy, measured in turn with
// the samples, so that the slack of timers is in both. What is in excess of one
// is round trips that need not be, and the work at both ends.
func BenchmarkFar(b *testing.B) {
	g := startFar(b)
	for _, kind := range []string{forwardHost, ownHost} {
		paths := g.come(b, kind, farCount)
		b.Run("open/host="+kind, func(b *testing.B) {
			g.trip.measure(b, func() ([]float64, error) { return g.opens(paths[0]) })
		})
		b.Run("idle/host="+kind, func(b *testing.B) {
			g.trip.measure(b, func() ([]float64, error) { return g.idleGets(paths) })
		})
		b.Run("first/host="+kind, func(b *testing.B) {
			g.trip.measure(b, func() ([]float64, error) { return g.firstGets(kind) })
		})
	}
}

// farRig is what the far hosts of a benchmark are behind.
type farRig struct {
	relay string    // the relay's address as its clients see it
	hosts *part     // "far-hosts"
	trip  *farTrips // through the same proxy
	next  int       // number of the next host
}

// startFar starts the processes. They end with the benchmark.
func startFar(b *testing.B) *farRig {
	b.Helper()
	service := startPartOf(b, "service")
	relay := startPartOf(b, "relay")
	delay := startPartOf(b, "delay", relay.addrs[0])
	g := &farRig{relay: relay.addrs[0], trip: newFarTrips(b, delay)}
	g.hosts = startPartOf(b, "far-hosts", delay.addrs[0], service.addrs[0], service.addrs[1])
	return g
}

// come brings n new hosts and returns the ways to them, which have been used.
func (g *farRig) come(b *testing.B, kind string, n int) []*path {
	b.Helper()
	var paths []*path
	for range n {
		id, p, err := g.comeOne(kind)
		if err == nil {
			_, err = openOnce(p)
		}
		if err == nil {
			_, err = farGet(p)
		}
		if err != nil {
			b.Fatalf("host %s: %v", id, err)
		}
		paths = append(paths, p)
	}
	return paths
}

func (g *farRig) comeOne(kind string) (id string, p *path, err error) {
	g.next++
	id = fmt.Sprint(kind, "-", g.next)
	p = newPath(kind, "http://"+g.relay+"/hosts/"+id, "http://"+g.relay+"/connect/"+id+"?service=greeting")
	return id, p, g.hosts.do("come %s %s", kind, id)
}

// firstGets are the first requests to hosts that have just come.
func (g *farRig) firstGets(kind string) (ms []float64, err error) {
	for range farCount {
		id, p, err := g.comeOne(kind)
		if err != nil {
			return nil, err
		}
		took, err := farGet(p)
		if err != nil {
			return nil, err
		}
		ms = append(ms, took)
		p.client.CloseIdleConnections()
		if err := g.hosts.do("go %s", id); err != nil {
			return nil, err
		}
		if err := g.trip.once(); err != nil {
			return nil, err
		}
	}
	return ms, nil
}

// opens are the set-up times of streams to a host that is in use.
func (g *farRig) opens(p *path) (ms []float64, err error) {
	for range farCount {
		time.Sleep(farPause)
		took, err := openOnce(p)
		if err != nil {
			return nil, err
		}
		ms = append(ms, milliseconds(took))
		if err := g.trip.once(); err != nil {
			return nil, err
		}
	}
	return ms, nil
}

// idleGets are the times of one GET on each of paths, none of which was used for
// ten seconds.
func (g *farRig) idleGets(paths []*path) (ms []float64, err error) {
	time.Sleep(farIdle)
	for _, p := range paths {
		took, err := farGet(p)
		if err != nil {
			return nil, err
		}
		ms = append(ms, took)
		if err := g.trip.once(); err != nil {
			return nil, err
		}
	}
	return ms, nil
}

func farGet(p *path) (ms float64, err error) {
	began := time.Now()
	err = fetch(p, http.MethodGet, "/small", nil, pattern[:smallSize], make([]byte, smallSize))
	return milliseconds(time.Since(began)), err
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
