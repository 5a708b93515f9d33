package bench_test

import (
	"io"
	"net"
	"testing"
	"time"
)

// farTrips measures round trips through a part "delay".
type farTrips struct {
	conn net.Conn
	took []float64 // milliseconds
}

// newFarTrips opens a connection that ends with the benchmark.
func newFarTrips(b *testing.B, delay *part) *farTrips {
	b.Helper()
	c, err := net.Dial("tcp", delay.addrs[len(delay.addrs)-1])
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	f := &farTrips{conn: c}
	if err := f.once(); err != nil { // opens the connection at the far end
		b.Fatal(err)
	}
	return f
}

// once measures one round trip.
func (f *farTrips) once() error {
	if err := f.conn.SetDeadline(time.Now().Add(turnLimit)); err != nil {
		return err
	}
	began := time.Now()
	var one [1]byte
	if _, err := f.conn.Write(one[:]); err != nil {
		return err
	}
	if _, err := io.ReadFull(f.conn, one[:]); err != nil {
		return err
	}
	f.took = append(f.took, milliseconds(time.Since(began)))
	return nil
}

// measure runs round, which measures round trips beside its samples, and reports
// samples as multiples of the median trip of their round.
func (f *farTrips) measure(b *testing.B, round func() (ms []float64, err error)) {
	b.Helper()
	var samples, trips []float64
	for b.Loop() {
		f.took = nil
		ms, err := round()
		if err != nil {
			b.Fatal(err)
		}
		trip := median(f.took)
		trips = append(trips, trip)
		for _, v := range ms {
			samples = append(samples, v/trip)
		}
	}
	b.ReportMetric(0, "ns/op") // of a round: says nothing
	b.ReportMetric(median(trips), "round-trip-ms")
	reportRatios(b, samples, "round-trips")
}
