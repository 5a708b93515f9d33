package bench_test

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// BenchmarkSwitches is how often relay and agent give up a core of their own
// accord per GET, one at a time on connections that are kept: each time is a
// wait for somebody else, and costs a wake-up. Unlike times it hardly depends on
// what else the machine does.
func BenchmarkSwitches(b *testing.B) {
	if runtime.GOOS != "linux" {
		b.Skip("switches are read from /proc")
	}
	g := startForwarding(b)
	buf := make([]byte, smallSize)
	get := func() {
		if err := fetch(g.path, http.MethodGet, "/small", nil, pattern[:smallSize], buf); err != nil {
			b.Fatal(err)
		}
	}
	for range 100 {
		get()
	}
	relay, agent := switches(b, g.relay), switches(b, g.agent)
	n := 0
	for b.Loop() {
		get()
		n++
	}
	b.ReportMetric((switches(b, g.relay)-relay)/float64(n), "relay-switches/GET")
	b.ReportMetric((switches(b, g.agent)-agent)/float64(n), "agent-switches/GET")
}

// switches is the number of voluntary context switches of all threads of p.
func switches(b *testing.B, p *part) (total float64) {
	b.Helper()
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", p.cmd.Process.Pid))
	if err != nil || len(names) == 0 {
		b.Fatalf("no threads of %s: %v", p.name, err)
	}
	for _, name := range names {
		n, err := readField(name, "voluntary_ctxt_switches:")
		if err != nil {
			b.Fatal(err)
		}
		total += n
	}
	return total
}

// readField reads the number behind the name of a field of a status file.
func readField(file, field string) (value float64, err error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if v, ok := strings.CutPrefix(lines.Text(), field); ok {
			_, err := fmt.Sscan(v, &value)
			return value, err
		}
	}
	return 0, fmt.Errorf("%s has no %s", file, field)
}
