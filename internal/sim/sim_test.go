package sim_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
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
func run(t *testing.T, seed uint64) (result *sim.Result, violations []string, evidence string) {
	s := sim.Generate(seed)
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
	return result, result.Violations, ""
}

// Every schedule keeps the invariants. A failure prints its seed and its trace;
// that seed alone is -sim.first=SEED -sim.count=1.
func TestSim_Seeds(t *testing.T) {
	n := *count
	if n == 0 {
		n = 60
	}
	begun := time.Now()
	failed, ends := 0, make(map[string]int)
	for seed := *first; seed < *first+n; seed++ {
		result, violations, evidence := run(t, seed)
		if *verbose && len(violations) == 0 {
			t.Logf("seed %d\n%s", seed, evidence)
		}
		if len(violations) > 0 {
			failed++
			t.Errorf("seed %d:\n%s\n%s", seed, strings.Join(violations, "\n"), evidence)
		}
		if result != nil {
			for code, n := range result.Ends {
				ends[code] += n
			}
		}
		if ran := seed - *first + 1; ran%1000 == 0 {
			t.Logf("%d schedules in %v, %d failed", ran, time.Since(begun).Round(time.Second), failed)
		}
		if failed >= 5 {
			t.Fatalf("%d of %d schedules failed: no more are run", failed, seed-*first+1)
		}
	}
	t.Logf("%d schedules, seeds %d to %d, in %v, %d failed; requests and streams by how they ended:\n%s",
		n, *first, *first+n-1, time.Since(begun).Round(time.Second), failed, table(ends))
}

// table is one line for each way to end, the most frequent one first.
func table(ends map[string]int) string {
	codes := slices.SortedFunc(maps.Keys(ends), func(a, b string) int {
		return cmp.Or(ends[b]-ends[a], strings.Compare(a, b))
	})
	var s strings.Builder
	for _, code := range codes {
		fmt.Fprintf(&s, "ended\t%d\t%s\n", ends[code], code)
	}
	return s.String()
}

// A seed is a schedule: the same one each time, and another one for each seed.
func TestGenerate_IsTheSeeds(t *testing.T) {
	seen := make(map[string]uint64)
	for seed := range uint64(200) {
		text := sim.Generate(seed).String()
		if again := sim.Generate(seed).String(); again != text {
			t.Fatalf("seed %d gives two schedules:\n%s\n%s", seed, text, again)
		}
		_, body, _ := strings.Cut(text, "\n")
		if other, ok := seen[body]; ok {
			t.Errorf("seeds %d and %d give the same schedule", other, seed)
		}
		seen[body] = seed
	}
}

// The table of guards in ARCHITECTURE.md is the list that is taken out, with the
// rules that notice, and each stands where the table says.
func TestSim_TableOfGuards(t *testing.T) {
	text, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "| guard | where | without it | noticed by |\n")
	if !ok {
		t.Fatal("ARCHITECTURE.md has no table of guards")
	}
	var got []sim.Guard
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 {
			break
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if strings.HasPrefix(cells[0], "---") {
			continue
		}
		got = append(got, sim.Guard{Name: cells[0], Rules: strings.Split(cells[3], ", ")})
		file := strings.Trim(cells[1], "`")
		code, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Errorf("the table's file of %q: %v", cells[0], err)
			continue
		}
		switches, err := os.ReadFile("../../" + path.Dir(file) + "/guard.go")
		if err != nil {
			t.Fatal(err)
		}
		before, _, ok := strings.Cut(string(switches), " = true // "+cells[0]+":")
		name := before[strings.LastIndexByte(before, '\t')+1:]
		if name = strings.TrimSpace(name); !ok || !strings.Contains(string(code), name) {
			t.Errorf("%s does not have the guard %q", file, cells[0])
		}
	}
	if !reflect.DeepEqual(got, sim.Guards) {
		t.Errorf("ARCHITECTURE.md has the guards\n%v\nwant those of guards.go\n%v", got, sim.Guards)
	}
}
