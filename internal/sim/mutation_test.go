//go:build dialback_mutation

package sim_test

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/internal/sim"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/store/memory"
	"github.com/dialback/dialback/transport"
)

const (
	mutationRuns  = 10  // per guard, each from a seed of its own
	mutationFound = 9   // of them must find it
	mutationSeeds = 300 // schedules of one run, at most
)

var guard = flag.String("sim.guard", "", "name of the only guard that TestSim_MissesEachGuard takes out")

// takeOut takes a guard out, wherever it is.
func takeOut(t *testing.T, name string) (restore func()) {
	for _, f := range []func(string) (func(), bool){agent.TakeOutGuard, relay.TakeOutGuard, memory.TakeOutGuard, transport.TakeOutGuard} {
		if restore, ok := f(name); ok {
			return restore
		}
	}
	t.Fatalf("no package has a guard %q", name)
	return nil
}

// Each guard, taken out, is missed by nine of ten runs, and by a rule that it is
// there for. A run is mutationSeeds schedules at most, from a seed of its own.
// With all guards in place the same seeds hold: TestSim_GuardSeedsHold.
func TestSim_MissesEachGuard(t *testing.T) {
	for _, g := range sim.Guards {
		if *guard != "" && g.Name != *guard {
			continue
		}
		t.Run(g.Name, func(t *testing.T) {
			defer takeOut(t, g.Name)()
			found, total, most := 0, 0, 0
			by := make(map[string]int)
			for n := range mutationRuns {
				first := guardSeed(n)
				for seed := first; seed < first+mutationSeeds; seed++ {
					_, violations, _ := run(t, seed)
					rule := noticed(g, violations)
					if rule == "" {
						continue
					}
					tries := int(seed-first) + 1
					found++
					total += tries
					most = max(most, tries)
					by[rule]++
					break
				}
			}
			t.Logf("%d of %d runs found it, after %d schedules on average and %d at most, by %v", found, mutationRuns, total/max(1, found), most, by)
			if found < mutationFound {
				t.Errorf("%d of %d runs of %d schedules have found that %q is taken out, want %d", found, mutationRuns, mutationSeeds, g.Name, mutationFound)
			}
		})
	}
}

// guardSeed is the first seed of a run.
func guardSeed(n int) uint64 { return 1_000_000 * uint64(n+1) }

// noticed is the rule of the guard that a run has seen broken, if any.
func noticed(g sim.Guard, violations []string) string {
	for _, v := range violations {
		rule, _, _ := strings.Cut(v, ":")
		if slices.Contains(g.Rules, rule) {
			return rule
		}
	}
	return ""
}

// The seeds of the runs above hold while no guard is taken out.
func TestSim_GuardSeedsHold(t *testing.T) {
	for n := range mutationRuns {
		for seed := guardSeed(n); seed < guardSeed(n)+20; seed++ {
			if _, violations, evidence := run(t, seed); len(violations) > 0 {
				t.Fatalf("seed %d, with every guard in place:\n%s\n%s", seed, strings.Join(violations, "\n"), evidence)
			}
		}
	}
}
