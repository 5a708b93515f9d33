//go:build linux

package chaos

import (
	"fmt"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dialback/dialback/internal/proctest"
)

// outcome is how one call, or one stream that is kept, went.
type outcome struct {
	kind   string // of the call
	host   string
	begun  time.Time
	ended  time.Time
	reason string // why it failed; empty if it did not
}

func (o outcome) String() string {
	return fmt.Sprintf("%s of %s, begun %s, %v long: %s", o.kind, o.host, o.begun.Format("15:04:05.000"), o.ended.Sub(o.begun).Round(time.Millisecond), o.reason)
}

// ledger is what clients have seen. It is safe for concurrent use.
type ledger struct {
	mu         sync.Mutex
	outcomes   []outcome
	violations map[string][]string // by rule; see the constants
	within     int                 // kept streams to an older socket, within the second that is allowed

	stalls  *proctest.Stalls
	stalled map[string]int // failures by reason that a stall of the machine explains
}

// stallMin is the shortest stall of the machine that explains that a time of half
// a second or a second was not kept, and stallReach how much later it may show.
const (
	stallMin   = 250 * time.Millisecond
	stallReach = 2 * time.Second
)

// stallReasons are failures that come from such a time.
var stallReasons = regexp.MustCompile(`^(503 (node_unreachable|store_unavailable|host_gone|host_offline)|502 (stream_closed|refused)|close (1013|4410|4412))$`)

// stalledDuring reports whether a stall explains a failure.
func (l *ledger) stalledDuring(o outcome) bool {
	from := o.begun
	if isKept(o.kind) {
		from = o.ended
	}
	return stallReasons.MatchString(o.reason) && l.stalls.Longest(from.Add(-stallReach), o.ended) >= stallMin
}

// The rules that no fault excuses.
const (
	ruleRetired   = "streams to retired sockets"
	ruleBytes     = "bytes lost or out of order in surviving streams"
	ruleTruncated = "truncated answers with a clean end"
	ruleTwice     = "POSTs that ran twice"
	ruleReason    = "failures without a fault that explains them"
	ruleLate      = "failures above their bound"
	ruleAway      = "hosts that were not back in time"
	ruleLeaks     = "leaks"
)

var rules = []string{ruleRetired, ruleBytes, ruleTruncated, ruleTwice, ruleReason, ruleLate, ruleAway, ruleLeaks}

func newLedger(s *proctest.Stalls) *ledger {
	return &ledger{violations: make(map[string][]string), stalls: s, stalled: make(map[string]int)}
}

// add records how a call went that has ended now.
func (l *ledger) add(kind, host string, begun time.Time, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outcomes = append(l.outcomes, outcome{kind, host, begun, time.Now(), reason})
}

// violate records what no fault excuses.
func (l *ledger) violate(rule, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.violations[rule] = append(l.violations[rule], time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// oldStream records a request that took a kept stream to a replaced process
// within the second that CONTRIBUTING.md states.
func (l *ledger) oldStream() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.within++
}

// report makes errors of the test of all violations.
func (l *ledger) report(t *testing.T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	const most = 20
	for _, rule := range rules {
		for i, v := range l.violations[rule] {
			if i == most {
				t.Errorf("%s: and %d more", rule, len(l.violations[rule])-most)
				break
			}
			t.Errorf("%s: %s", rule, v)
		}
	}
}

// judge holds every failure against the faults, and fills in what each fault
// has caused. It is called when all calls have ended.
func (l *ledger) judge(faults []*fault) {
	l.mu.Lock()
	outcomes := slices.Clone(l.outcomes)
	l.mu.Unlock()
	slices.SortFunc(outcomes, func(a, b outcome) int { return a.begun.Compare(b.begun) })
	for _, o := range outcomes {
		if o.reason == "" {
			continue
		}
		// Faults do not overlap, but a call may: the fault during which it
		// failed comes first, then the one before.
		var cause *fault
		for i := len(faults) - 1; i >= 0 && cause == nil; i-- {
			if f := faults[i]; f.touches(o) && f.explains(o) {
				cause = f
			}
		}
		if cause == nil && l.stalledDuring(o) {
			l.stalled[o.reason]++
			continue
		}
		if cause == nil {
			l.violate(ruleReason, "%v (%s)", o, during(faults, o))
			continue
		}
		cause.failures[o.reason]++
		cause.failed = append(cause.failed, o)
		if late := cause.lateness(o); late > 0 {
			l.violate(ruleLate, "%v, %v above the bound, during %v", o, late.Round(time.Millisecond), cause)
		}
	}
	for _, f := range faults {
		f.outage = longestOutage(outcomes, f)
	}
}

// during names the faults that touch an outcome.
func during(faults []*fault, o outcome) string {
	s := "calm"
	for _, f := range faults {
		if f.touches(o) {
			s = "during " + f.String()
		}
	}
	return s
}

// longestOutage is the longest time that a host was unreachable for a kind of
// call during a fault: from the begin of the first call that failed to the end
// of the next one that did not.
func longestOutage(outcomes []outcome, f *fault) time.Duration {
	type key struct{ kind, host string }
	since := make(map[key]time.Time)
	var longest time.Duration
	for _, o := range outcomes {
		k := key{o.kind, o.host}
		begun, failing := since[k]
		switch {
		case isKept(o.kind):
		case o.reason != "" && !failing && f.touches(o):
			since[k] = o.begun
		case o.reason == "" && failing:
			longest = max(longest, o.ended.Sub(begun))
			delete(since, k)
		}
	}
	return longest
}

// isKept reports whether a kind of call lasts until it is ended: its begin says
// nothing of a failure.
func isKept(kind string) bool {
	return kind == kindKeptWS || kind == kindKeptBytes || kind == kindSSH || kind == kindSlow
}
