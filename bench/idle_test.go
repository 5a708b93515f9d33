package bench_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// idleCount is how many hosts are measured, after warmCount others, whose cost
// is not only theirs.
const (
	idleCount = 5000
	warmCount = 100
)

// BenchmarkIdleHost is the growth of the relay's resident memory per idle host,
// by the version that the hosts speak. The relay runs with GOGC=10, so that
// what the collector leaves lying about is not counted.
func BenchmarkIdleHost(b *testing.B) {
	if runtime.GOOS != "linux" {
		b.Skip("resident memory is read from /proc")
	}
	for _, proto := range []struct{ name, query string }{
		{"v2", ""},
		{"v3", "&proto=3&seq=1&instance=7b1e6f0a-0f0f-4f4f-8f8f-000000000001"},
	} {
		b.Run("proto="+proto.name, func(b *testing.B) {
			var total float64
			n := 0
			for b.Loop() {
				kib, err := idleCost(proto.query)
				if err != nil {
					b.Fatal(err)
				}
				total += kib
				n++
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(total/float64(n), "KiB/host")
		})
	}
}

// idleCost measures KiB per host with a relay of its own.
func idleCost(query string) (float64, error) {
	relay, err := startPart("relay", nil, "GOGC=10")
	if err != nil {
		return 0, err
	}
	defer relay.stop()
	hosts, err := startPart("hosts", relay.addrs)
	if err != nil {
		return 0, err
	}
	defer hosts.stop()

	if err := hosts.do("attach %d %s", warmCount, query); err != nil {
		return 0, err
	}
	if err := hosts.do("ping"); err != nil {
		return 0, err
	}
	before, err := settledRSS(relay.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	if err := hosts.do("attach %d %s", idleCount, query); err != nil {
		return 0, err
	}
	for range 3 {
		if err := hosts.do("ping"); err != nil {
			return 0, err
		}
		time.Sleep(2 * time.Second)
	}
	after, err := settledRSS(relay.cmd.Process.Pid)
	return (after - before) / idleCount, err
}

// settledRSS waits until the resident memory of a process has not changed by
// more than a hundredth for 3 s, but 15 s at most, and returns it in KiB.
func settledRSS(pid int) (float64, error) {
	last, err := rss(pid)
	for still, n := 0, 0; err == nil && still < 6 && n < 30; n++ {
		time.Sleep(500 * time.Millisecond)
		var now float64
		if now, err = rss(pid); now > last*0.99 && now < last*1.01 {
			still++
		} else {
			still, last = 0, now
		}
	}
	if err != nil {
		return 0, err
	}
	return rss(pid)
}

// rss is the resident memory of a process.
func rss(pid int) (kib float64, err error) {
	return readField(fmt.Sprintf("/proc/%d/status", pid), "VmRSS:")
}
