//go:build linux

package chaos

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/dialback/dialback/internal/proctest"
)

// remains is what a node's process has when all hosts and clients have left.
type remains struct {
	node       string
	files      int
	rssKB      int
	goroutines int // all of them, at its end
	relays     int // those of package relay beyond the one that every Server has
}

// looseFiles is how many descriptors a node may have that has no balancer, no
// other node and nobody else: its own ones, and up to twenty connections of its
// Redis client and some to the Sentinel. Pipes do not count: the runtime keeps
// those that it copied with until a collection.
const looseFiles = 40

// settleTime bounds the wait for rest: idle streams end with their hosts.
const settleTime = 30 * time.Second

// ownGoroutine is what every Server has running (ARCHITECTURE.md).
const ownGoroutine = "relay.(*nodeTable).run"

// inspect looks at what is left in each node, and ends it: a process that gets
// SIGQUIT prints its goroutines.
func (w *world) inspect() []remains {
	w.t.Helper()
	w.balancer.Stop()
	var all []remains
	for _, n := range w.nodes {
		r := remains{node: n.ID}
		for end := time.Now().Add(settleTime); ; time.Sleep(500 * time.Millisecond) {
			// Nodes tell each other that the hosts have left, and keep the
			// connections for a minute.
			for _, n := range w.nodes {
				n.calls.Cut()
			}
			r.files = countFiles(n.P.Pid())
			if r.files <= looseFiles || time.Now().After(end) {
				break
			}
		}
		r.rssKB = residentKB(n.P.Pid())
		if r.files > looseFiles {
			w.ledger.violate(ruleLeaks, "%s has %d descriptors with nobody there, want %d at most, and its gate %d connections: %v", n.ID, r.files, looseFiles, n.calls.Open(), describeFiles(n.P.Pid()))
		}
		all = append(all, r)
	}
	time.Sleep(3 * time.Second) // ReconnectGrace, and the last rows
	live, err := w.liveHosts()
	if err != nil || live > 0 {
		w.ledger.violate(ruleLeaks, "%d hosts are attached in Redis with nobody there, %v", live, err)
	}
	for i, n := range w.nodes {
		n.P.Signal(syscall.SIGQUIT)
		n.P.Exit()
		w.keepLog(n)
		for _, g := range goroutines(n.P) {
			all[i].goroutines++
			if strings.Contains(g, "dialback/relay.") && !strings.Contains(g, ownGoroutine) {
				all[i].relays++
				w.ledger.violate(ruleLeaks, "%s has with nobody there:\n%s", n.ID, g)
			}
		}
		if all[i].goroutines == 0 {
			w.t.Errorf("%s printed no goroutines: nothing was looked at", n.ID)
		}
	}
	return all
}

// liveHosts counts the hosts that Redis takes for attached.
func (w *world) liveHosts() (int, error) {
	master, _ := w.redis.Current(w.t)
	keys, err := w.client(master).Keys(w.t.Context(), "*}:live").Result()
	return len(keys), err
}

// goroutines are the stacks that a process printed at its end. The first part
// is of the runtime's own.
func goroutines(p *proctest.Process) []string {
	_, dump, _ := strings.Cut(p.Stderr.String(), "SIGQUIT: quit")
	var all []string
	for _, part := range strings.Split(dump, "\n\n") {
		if goroutineHead.MatchString(part) {
			all = append(all, part)
		}
	}
	return all
}

var goroutineHead = regexp.MustCompile(`(?m)^goroutine [1-9][0-9]* `)

func countFiles(pid int) int {
	names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return 0
	}
	n := 0
	for _, name := range names {
		if target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, name.Name())); err == nil && !strings.HasPrefix(target, "pipe:") {
			n++
		}
	}
	return n
}

// describeFiles counts the descriptors of a process by what they are: sockets of
// TCP by the other end and their state, as the kernel writes them.
func describeFiles(pid int) map[string]int {
	sockets := make(map[string]string)
	table, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", pid))
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 9 {
			what := "TCP to " + f[2]
			if strings.HasSuffix(f[1], ":1F90") { // 8080
				what = "TCP from others"
			}
			sockets["socket:["+f[9]+"]"] = what + ", state " + f[3]
		}
	}
	kinds := make(map[string]int)
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	names, _ := os.ReadDir(dir)
	for _, name := range names {
		target, _ := os.Readlink(dir + name.Name())
		if known, ok := sockets[target]; ok {
			target = known
		}
		if i := strings.IndexByte(target, '['); i > 0 {
			target = target[:i]
		}
		kinds[target]++
	}
	return kinds
}

func residentKB(pid int) (kb int) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	_, _ = fmt.Sscan(rest, &kb)
	return kb
}
