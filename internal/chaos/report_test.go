//go:build linux

package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report is what a run came to.
type report struct {
	w      *world
	seed   uint64
	took   time.Duration
	faults []*fault
	left   []remains
}

func (r report) write(file string) {
	r.w.t.Helper()
	if err := os.WriteFile(file, []byte(r.String()), 0o644); err != nil {
		r.w.t.Error(err)
	}
}

func (r report) String() string {
	var b strings.Builder
	result := "passed"
	if r.w.t.Failed() {
		result = "FAILED"
	}
	fmt.Fprint(&b, "# Chaos\n\nWritten by the test itself. Package `internal/chaos` says what it does; CONTRIBUTING.md how to run it.\n\n")
	fmt.Fprintf(&b, "    go test -run Chaos -timeout 0 ./internal/chaos -chaos.for=%v -chaos.seed=%d -chaos.report=FILE\n\n", *chaosFor, r.seed)
	fmt.Fprintf(&b, "- result: **%s**\n- date: %s\n- machine: %d CPUs, %s/%s, %s, Redis %s with a replica and a Sentinel\n- faults: %d, within %v\n",
		result, time.Now().UTC().Format("2006-01-02"), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(),
		r.w.redis.Sentinel.Version(r.w.t), len(r.faults), r.took.Round(time.Second))
	r.rules(&b)
	r.calls(&b)
	r.byKind(&b)
	r.each(&b)
	fmt.Fprint(&b, "\n## What is left with nobody there\n\n| node | goroutines | of them of streams and hosts | descriptors | RSS MiB |\n| --- | --- | --- | --- | --- |\n")
	for _, l := range r.left {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %.1f |\n", l.node, l.goroutines, l.relays, l.files, float64(l.rssKB)/1024)
	}
	return b.String()
}

func (r report) rules(b *strings.Builder) {
	l := r.w.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprint(b, "\n## What no fault excuses\n\n| rule | violations |\n| --- | --- |\n")
	for _, rule := range rules {
		fmt.Fprintf(b, "| %s | %d |\n", rule, len(l.violations[rule]))
	}
	n, longest := l.stalls.Total()
	fmt.Fprintf(b, "\nStalls of the machine, when the test's own process was not woken for 200 ms or more: %d, the longest %v. Failures that they explain, and no fault: %s.\n",
		n, longest.Round(time.Millisecond), byReason(l.stalled))
	fmt.Fprintf(b, "\nRequests over a kept stream to a replaced process, within the second that is allowed: %d.\n", l.within)
}

func (r report) calls(b *strings.Builder) {
	total, failed := make(map[string]int), make(map[string]int)
	longest := make(map[string]time.Duration)
	for _, o := range r.w.ledger.outcomes {
		total[o.kind]++
		if o.reason != "" {
			failed[o.kind]++
			longest[o.kind] = max(longest[o.kind], o.ended.Sub(o.begun))
		}
	}
	fmt.Fprint(b, "\n## Calls\n\nA kept stream counts once, when it ends.\n\n| kind | calls | failures | the longest failure |\n| --- | --- | --- | --- |\n")
	for _, k := range kindsOfCalls {
		long := longest[k].Round(time.Millisecond).String()
		if isKept(k) || failed[k] == 0 {
			long = ""
		}
		fmt.Fprintf(b, "| %s | %d | %d | %s |\n", k, total[k], failed[k], long)
	}
}

func (r report) byKind(b *strings.Builder) {
	fmt.Fprint(b, "\n## Faults\n\nThe longest outage is of one host for one kind of call, from the begin of the first call that failed to the end of the next that did not; "+
		"until back is from the end of the fault until every host was reached through the balancer and every node.\n\n"+
		"| fault | times | longest outage | until back, at most | bound | failures by reason |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, k := range kinds {
		n, failures := 0, make(map[string]int)
		var outage, back time.Duration
		for _, f := range r.faults {
			if f.kind != k {
				continue
			}
			n++
			outage, back = max(outage, f.outage), max(back, f.back)
			for reason, count := range f.failures {
				failures[reason] += count
			}
		}
		if n > 0 {
			fmt.Fprintf(b, "| %s | %d | %v | %v | %v | %s |\n", k.name, n, outage.Round(10*time.Millisecond), back.Round(10*time.Millisecond), k.back, byReason(failures))
		}
	}
}

func (r report) each(b *strings.Builder) {
	fmt.Fprint(b, "\n## Each of them\n\n| at | fault | lasted | longest outage | until back | failures |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, f := range r.faults {
		total := 0
		for _, n := range f.failures {
			total += n
		}
		fmt.Fprintf(b, "| %v | %v | %v | %v | %v | %d |\n", f.begun.Sub(r.faults[0].begun).Round(time.Second), f,
			f.ended.Sub(f.begun).Round(10*time.Millisecond), f.outage.Round(10*time.Millisecond), f.back.Round(10*time.Millisecond), total)
	}
}

// byReason names reasons, the commonest first.
func byReason(failures map[string]int) string {
	reasons := slices.SortedFunc(maps.Keys(failures), func(x, y string) int {
		return cmp.Or(failures[y]-failures[x], strings.Compare(x, y))
	})
	var parts []string
	for _, reason := range reasons {
		parts = append(parts, fmt.Sprint(reason, ": ", failures[reason]))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, "; ")
}
