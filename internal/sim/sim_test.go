package sim_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/internal/sim"
)

var (
	first   = flag.Uint64("sim.first", 1, "first seed of TestSim_Seeds")
	count   = flag.Uint64("sim.count", 0, "number of seeds of TestSim_Seeds; 0 means a few, as in go test ./...")
	verbose = flag.Bool("sim.v", false, "print schedule and trace of each seed")
)

// TestMain runs the tests with a lazier collector: a schedule leaves little behind
// that lives, and much that does not. That nothing is left running is what the
// end of each bubble checks.
func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// run runs the schedule of a seed in a bubble of its own. A panic of the bubble,
// such as goroutines that are left behind, is a violation too.
func run(t *testing.T, seed uint64) (violations []string, evidence string) {
	s := sim.Generate(seed)
	var result *sim.Result
	defer func() {
		evidence = s.String()
		if result != nil {
			evidence += result.Trace.String()
		}
		if p := recover(); p != nil {
			stacks := make([]byte, 64<<10)
			stacks = stacks[:runtime.Stack(stacks, true)]
			violations = append(violations, fmt.Sprintf("I8 no goroutine left: %v\n%s", p, stacks))
		}
	}()
	synctest.Test(t, func(*testing.T) { result = sim.Run(s) })
	return result.Violations, ""
}

// Every schedule keeps the invariants. A failure prints its seed and its trace;
// that seed alone is -sim.first=SEED -sim.count=1.
func TestSim_Seeds(t *testing.T) {
	n := *count
	if n == 0 {
		n = 100
	}
	begun := time.Now()
	failed := 0
	for seed := *first; seed < *first+n; seed++ {
		violations, evidence := run(t, seed)
		if *verbose && len(violations) == 0 {
			t.Logf("seed %d\n%s", seed, evidence)
		}
		if len(violations) > 0 {
			failed++
			t.Errorf("seed %d:\n%s\n%s", seed, strings.Join(violations, "\n"), evidence)
		}
		if failed >= 5 {
			t.Fatalf("%d of %d schedules failed: no more are run", failed, seed-*first+1)
		}
	}
	t.Logf("%d schedules, seeds %d to %d, in %v", n, *first, *first+n-1, time.Since(begun).Round(time.Second))
}
