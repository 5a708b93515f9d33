//go:build linux

package soak

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// write writes the report: command, date, machine, and how the figures went.
func (w *world) write(file string, c *calls, redisVersion string, before, during, after []census) {
	w.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "# Soak\n\n")
	fmt.Fprintf(&b, "Written by the test itself. Package `internal/soak` says what it does; CONTRIBUTING.md how to run it.\n\n")
	fmt.Fprintf(&b, "    go test -run Soak -timeout 0 ./internal/soak -soak.for=%v -soak.hosts=%d -soak.churn=%v -soak.report=FILE\n\n", *soakFor, *soakHosts, *soakChurn)
	bad, stalled := w.fleet.judge(w.stalls)
	result := "passed"
	if w.t.Failed() || len(bad) > 0 {
		result = "FAILED"
	}
	fmt.Fprintf(&b, "- result: **%s**\n- date: %s\n- machine: %d CPUs, %s/%s, %s, Redis %s\n", result, time.Now().UTC().Format("2006-01-02"),
		runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), redisVersion)
	fmt.Fprintf(&b, "- hosts: %d, half of them of protocol 2; heartbeat %v\n", *soakHosts, heartbeat)
	fmt.Fprintf(&b, "- control sockets that were opened anew: %d (", w.fleet.connects.Load())
	for i := range ways {
		if i > 0 {
			fmt.Fprint(&b, "; ")
		}
		fmt.Fprintf(&b, "%s: %d", ways[i].name, w.fleet.ways[i].Load())
	}
	fmt.Fprintf(&b, "); attempts that failed: %d", w.fleet.retries.Load())
	fmt.Fprintf(&b, "\n- calls: %d, of which %d were to be left by their clients; failures: %d\n\n", c.total.Load(), c.aborted.Load(), len(bad))

	n, longest := w.stalls.Total()
	fmt.Fprintf(&b, "Stalls of the machine, when the test's or the relay's process was not woken for 200 ms or more: %d, the longest %v. Failures that they explain: %d.\n\n",
		n, longest.Round(time.Millisecond), stalled)
	fmt.Fprint(&b, "The relay's process after a forced collection, and the keys in Redis:\n\n")
	fmt.Fprint(&b, "| when | goroutines | descriptors | heap MiB | stacks MiB | RSS MiB | streams | rows: hosts | attached | sockets | nodes |\n")
	fmt.Fprint(&b, "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	row := func(when string, c census) {
		fmt.Fprintf(&b, "| %s | %d | %d | %.1f | %.1f | %.1f | %d | %d | %d | %d | %d |\n", when, c.Goroutines, c.Files, mib(c.Heap), mib(c.Stacks), mib(c.RSS),
			c.Stats.Streams, c.rows.Hosts, c.Live, c.Sockets, c.Nodes+c.Other)
	}
	row("no host yet", before[0])
	row("**at rest, before**", before[1])
	for _, c := range during {
		row("busy, "+c.at.Round(time.Second).String(), c)
	}
	row("**at rest, after**", after[0])
	row("no host any more", after[1])
	fmt.Fprint(&b, "\nAt rest, what is there after may exceed what was there before by:\n\n")
	for _, m := range margins {
		limit := fmt.Sprintf("%.0f", m.plus)
		if m.factor > 1 {
			limit = fmt.Sprintf("%.0f %% and %.0f MiB", (m.factor-1)*100, m.plus/(1<<20))
		}
		fmt.Fprintf(&b, "- %s: %s (%s)\n", m.name, limit, m.why)
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		w.t.Error(err)
	}
}
