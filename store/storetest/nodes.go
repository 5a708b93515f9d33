package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dialback/dialback/store"
)

var nodeCases = []testCase{
	{name: "KeepNodeIsVisibleOnEveryNode", run: keepNodeIsVisible},
	{name: "KeepNodeSaysWhetherItCreatedTheLease", run: keepNodeCreated, timed: true},
	{name: "KeepNodeSaysThatRenewalsWereLost", run: keepNodeLost},
	{name: "KeepNodeUpdatesTheRecord", run: keepNodeUpdates},
	{name: "NodesAreOrderedByID", run: nodesAreOrdered},
	{name: "ALeaseExpiresAtItsDeadline", run: leaseExpires, timed: true},
	{name: "ANewIncarnationTakesOver", run: newIncarnationTakesOver},
	{name: "ANewIncarnationTakesOverAnExpiredLease", run: takeOverExpired},
	{name: "ANewIncarnationTakesOverADroppedLease", run: takeOverDropped},
	{name: "AnEarlierIncarnationDoesNotTakeOver", run: earlierDoesNotTakeOver},
	{name: "SixteenReplacedIncarnationsAreRemembered", run: sixteenReplaced},
	{name: "DropNodeEndsOnlyItsOwnLease", run: dropNode},
	{name: "AReplacedIncarnationIsRefusedForADay", run: replacedForADay, long: true},
}

func nodeOf(id, incarnation string) store.Node {
	return store.Node{
		ID:          id,
		URL:         "http://" + incarnation + ".example:8080",
		Incarnation: incarnation,
		StartedAt:   time.Date(2025, 12, 31, 23, 59, 59, 987_000_000, time.UTC),
	}
}

// keep keeps n on s and wants to hear whether the lease was created.
func (e *env) keep(s store.Store, n store.Node, lease time.Duration, created bool, rule string) {
	e.Helper()
	got, err := s.KeepNode(e.ctx, n, lease)
	if err != nil || got != created {
		e.Fatalf("KeepNode(%s, %s) = %v, %v, want %v: %s", n.ID, n.Incarnation, got, err, created, rule)
	}
}

func (e *env) wantRefused(s store.Store, n store.Node, rule string) {
	e.Helper()
	if _, err := s.KeepNode(e.ctx, n, e.far); !errors.Is(err, store.ErrRetired) {
		e.Fatalf("KeepNode(%s, %s) = %v, want ErrRetired: %s", n.ID, n.Incarnation, err, rule)
	}
}

func (e *env) drop(s store.Store, id, incarnation string) {
	e.Helper()
	if err := s.DropNode(e.ctx, id, incarnation); err != nil {
		e.Fatalf("DropNode(%s, %s) = %v; the contract says nil, also when there is nothing to do", id, incarnation, err)
	}
}

// wantNodes wants the live nodes, as B sees them, to be these.
func (e *env) wantNodes(rule string, want ...store.Node) {
	e.Helper()
	got, err := e.B.Nodes(e.ctx)
	if err != nil {
		e.Fatalf("Nodes = %v, want no error", err)
	}
	same := slices.EqualFunc(got, want, func(a, b store.Node) bool {
		if !sameTime(a.StartedAt, b.StartedAt) {
			return false
		}
		a.StartedAt = b.StartedAt
		return a == b
	})
	if !same {
		e.Fatalf("Nodes = %+v\nwant %+v: %s", got, want, rule)
	}
}

func keepNodeIsVisible(e *env) {
	e.wantNodes("no node is registered")
	n := nodeOf("a", "1")
	e.keep(e.A, n, e.far, true, "no lease stood")
	e.wantNodes("when KeepNode returns every node sees it", n)
}

func keepNodeCreated(e *env) {
	n, lease := nodeOf("a", "1"), 6*e.Tick
	e.keep(e.A, n, lease, true, "no lease stood")
	for range 3 {
		e.advanceWithin(lease)
		e.keep(e.B, n, lease, false, "the lease stands, each KeepNode makes it run anew")
	}
	e.advanceWithin(lease)
	e.wantNodes("the lease stands", n)
	e.advanceToEnd(lease)
	e.keep(e.A, n, lease, true, "the lease has expired")
	e.drop(e.A, n.ID, n.Incarnation)
	e.keep(e.B, n, lease, true, "the lease was dropped")
}

// The Store does not have to lose anything for that: a number is left out.
func keepNodeLost(e *env) {
	n := nodeOf("a", "1")
	for _, step := range []struct {
		beat    uint64
		created bool
		rule    string
	}{
		{1, true, "no lease stood"},
		{2, false, "the lease stands, and has renewal 1"},
		{2, false, "a renewal of which the caller heard nothing is made again"},
		{4, true, "renewal 3 is not there any more, nor what was written since"},
		{5, false, "renewal 4 is there"},
	} {
		n.Beat = step.beat
		e.keep(e.A, n, e.far, step.created, step.rule)
		e.wantNodes("KeepNode updates the record", n)
	}
}

func keepNodeUpdates(e *env) {
	n := nodeOf("a", "1")
	e.keep(e.A, n, e.far, true, "no lease stood")
	n.Draining, n.URL = true, "http://moved.example"
	e.keep(e.A, n, e.far, false, "the lease stands")
	e.wantNodes("KeepNode updates the record", n)
	n.Draining, n.URL = false, ""
	e.keep(e.A, n, e.far, false, "the lease stands")
	e.wantNodes("KeepNode updates the record", n)
}

func nodesAreOrdered(e *env) {
	ids := []string{"b", "a:1", "ü", "A", "a", "10", "9", "a 2"}
	for _, id := range ids {
		e.keep(e.A, nodeOf(id, "1"), e.far, true, "no lease stood")
	}
	slices.Sort(ids)
	var want []store.Node
	for _, id := range ids {
		want = append(want, nodeOf(id, "1"))
	}
	e.wantNodes("nodes are ordered by ID, byte by byte", want...)
}

func leaseExpires(e *env) {
	lease := 4 * e.Tick
	stays, goes := nodeOf("a", "1"), nodeOf("b", "1")
	e.keep(e.A, stays, e.far, true, "no lease stood")
	e.keep(e.A, goes, lease, true, "no lease stood")
	e.advanceWithin(lease)
	e.wantNodes("its lease has not run out", stays, goes)
	e.advanceToEnd(lease)
	e.wantNodes("at its deadline a lease counts as expired", stays)
}

func newIncarnationTakesOver(e *env) {
	old, next := nodeOf("a", "old"), nodeOf("a", "new")
	e.keep(e.A, old, e.far, true, "no lease stood")
	e.keep(e.B, next, e.far, true, "no lease of this incarnation stood")
	e.wantNodes("a new incarnation takes over", next)
	e.wantRefused(e.A, old, "another incarnation has taken over")
	e.wantNodes("a refused KeepNode changes nothing", next)
	e.keep(e.B, next, e.far, false, "the lease stands")
	e.drop(e.B, next.ID, next.Incarnation)
	e.wantRefused(e.A, old, "a replaced incarnation is refused also when its successor has left")
	e.wantNodes("nobody is left")
}

func takeOverExpired(e *env) {
	old, next := nodeOf("a", "old"), nodeOf("a", "new")
	e.keep(e.A, old, e.Tick, true, "no lease stood")
	e.advance(e.Tick + e.slow)
	e.keep(e.B, next, e.Tick, true, "no lease stood")
	e.wantRefused(e.A, old, "the newer incarnation wins, also when the older one's lease had run out before it came")
	e.advance(e.Tick + e.slow)
	e.wantRefused(e.A, old, "a replaced incarnation is refused also when its successor's lease has run out")
	e.keep(e.B, next, e.Tick, true, "its lease had run out, but it was not replaced")
}

func takeOverDropped(e *env) {
	old, next := nodeOf("a", "old"), nodeOf("a", "new")
	e.keep(e.A, old, e.far, true, "no lease stood")
	e.drop(e.A, old.ID, old.Incarnation)
	e.keep(e.B, next, e.far, true, "no lease stood")
	e.wantRefused(e.A, old, "the newer incarnation wins, also when the older one had dropped its lease")
	e.wantNodes("a refused KeepNode changes nothing", next)
}

func earlierDoesNotTakeOver(e *env) {
	old, next := nodeOf("a", "old"), nodeOf("a", "new")
	next.StartedAt = old.StartedAt.Add(time.Microsecond)
	e.keep(e.A, next, e.far, true, "no lease stood")
	e.wantRefused(e.B, old, "a Store that has lost who was replaced knows it by who started earlier")
	e.wantNodes("a refused KeepNode changes nothing", next)
	e.keep(e.A, next, e.far, false, "the lease stands")
	e.drop(e.A, next.ID, next.Incarnation)
	e.keep(e.B, old, e.far, true, "nobody has a live lease: a process whose clock is behind may start")
	e.wantNodes("it holds the ID", old)
}

func sixteenReplaced(e *env) {
	for i := range 17 {
		e.keep(e.A, nodeOf("a", fmt.Sprint(i)), e.far, true, "a new incarnation takes over")
	}
	for i := range 16 {
		e.wantRefused(e.B, nodeOf("a", fmt.Sprint(i)), "the 16 incarnations that were replaced last are remembered")
	}
	e.wantNodes("the newest holds the ID", nodeOf("a", "16"))
	e.keep(e.A, nodeOf("b", "0"), e.far, true, "each node ID has incarnations of its own")
}

func dropNode(e *env) {
	a, b := nodeOf("a", "1"), nodeOf("b", "1")
	e.keep(e.A, a, e.far, true, "no lease stood")
	e.keep(e.A, b, e.far, true, "no lease stood")
	e.drop(e.B, "a", "another")
	e.drop(e.B, "nobody", "1")
	e.wantNodes("the lease of another incarnation is not touched", a, b)
	for range 2 {
		e.drop(e.A, "a", "1")
		e.wantNodes("its lease has ended", b)
	}
}

func replacedForADay(e *env) {
	old, next := nodeOf("a", "old"), nodeOf("a", "new")
	e.keep(e.A, old, e.far, true, "no lease stood")
	e.keep(e.A, next, e.Tick, true, "no lease of this incarnation stood")
	e.advance(store.TombstoneTTL - time.Second)
	e.wantRefused(e.B, old, "a replaced incarnation is remembered for TombstoneTTL")
}
