package sim

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// stamp is a moment: fake time since the beginning, and a number that orders
// what happens at the same time. The zero stamp is before everything.
type stamp struct {
	t time.Duration
	n int64
}

func (a stamp) before(b stamp) bool { return a.n < b.n }

// Trace is what happened, in order, and what was wrong with it.
type Trace struct {
	// Immutable after newTrace.
	start time.Time

	// Guarded by mu.
	mu         sync.Mutex
	n          int64
	events     []event
	violations []string
}

type event struct {
	stamp
	text string
}

func newTrace() *Trace { return &Trace{start: time.Now()} }

// now is this moment.
func (tr *Trace) now() stamp {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.nowLocked()
}

func (tr *Trace) nowLocked() stamp {
	tr.n++
	return stamp{time.Since(tr.start), tr.n}
}

// log notes an event and returns its moment.
func (tr *Trace) log(format string, args ...any) stamp {
	text := fmt.Sprintf(format, args...)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	at := tr.nowLocked()
	tr.events = append(tr.events, event{at, text})
	return at
}

// violated notes that a rule was broken. rule begins with the invariant.
func (tr *Trace) violated(rule, format string, args ...any) {
	text := rule + ": " + fmt.Sprintf(format, args...)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	at := tr.nowLocked()
	tr.events = append(tr.events, event{at, "!!! " + text})
	tr.violations = append(tr.violations, text)
}

// failed reports whether a rule was broken.
func (tr *Trace) failed() bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return len(tr.violations) > 0
}

// String is the trace as lines of text.
func (tr *Trace) String() string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	var b strings.Builder
	for _, e := range tr.events {
		fmt.Fprintf(&b, "%10.4fs %5d  %s\n", e.t.Seconds(), e.n, e.text)
	}
	return b.String()
}
