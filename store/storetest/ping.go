package storetest

import (
	"slices"

	"github.com/dialback/dialback/store"
)

var pingCases = []testCase{
	{name: "PingKeepsARowForLongerThanItsTTL", run: pingKeepsARow, timed: true},
	{name: "PingSetsLastPing", run: pingSetsLastPing},
	{name: "PingChangesNothingElse", run: pingChangesNothingElse},
	{name: "PingAnswersForEachArgument", run: pingAnswersForEachArgument},
	{name: "PingOfNothingIsNothing", run: pingOfNothing},
	{name: "PingWritesALostRowAgain", run: pingWritesALostRow},
	{name: "PingWritesAnExpiredRowAgain", run: pingWritesAnExpiredRow},
	{name: "PingAfterLostWritesLetsTheNewestGenerationWin", run: pingNewestWins},
	{name: "PingOfTheSameGenerationButAnotherSocketIsRetired", run: pingSplitBrain},
	{name: "PingOfAReplacedSocketIsRetiredAlsoWhenItsSuccessorExpired", run: pingAfterSuccessorExpired},
	{name: "PingDoesNotWriteWhereATombstoneStands", run: pingUnderTombstone},
	{name: "PingWritesOverAnOlderTombstone", run: pingOverOlderTombstone},
	{name: "PingOfARetiredSocketDoesNotKeepItsSuccessor", run: pingDoesNotKeepSuccessor},
}

func pingKeepsARow(e *env) {
	ttl := 6 * e.Tick
	a := e.claim(e.A, socket("h", "s"), ttl).Current
	for range 4 {
		e.advanceWithin(ttl)
		// Before the Ping: one that writes an expired row again must not pass
		// for one that keeps it.
		e.wantCurrent("h", "s", "each Ping makes the ttl run anew")
		if !e.ping(e.B, ttl, a)[0] {
			e.Fatalf("Ping says retired, but the socket is current")
		}
	}
	e.advanceWithin(ttl)
	e.wantCurrent("h", "s", "each Ping makes the ttl run anew")
	e.advanceToEnd(ttl)
	e.wantNone("h", "the ttl of the last Ping has run out")
}

func pingSetsLastPing(e *env) {
	a := e.attach(socket("h", "s"))
	e.tick()
	e.wantPing(e.B, a, true, "it is current")
	got := e.wantCurrent("h", "s", "it was pinged")
	if !got.LastPing.After(a.LastPing) {
		e.Fatalf("LastPing is %v after %v; Ping sets it by the Store's clock", got.LastPing, a.LastPing)
	}
}

func pingChangesNothingElse(e *env) {
	a := e.attach(socket("h", "s"))
	changed := socket("h", "s")
	changed.Generation = a.Generation
	changed.NodeID, changed.Incarnation, changed.Meta, changed.Proto = "elsewhere", "another", nil, 9
	e.wantPing(e.B, changed, true, "it is current")
	got := e.wantCurrent("h", "s", "it was pinged")
	a.LastPing = got.LastPing
	e.wantSame(got, a, "Ping refreshes a row that stands and changes nothing else")
}

func pingAnswersForEachArgument(e *env) {
	old := e.attach(socket("one", "old"))
	one := e.attach(socket("one", "new"))
	two := e.attach(socket("two", "s"))
	gone := e.attach(socket("three", "s"))
	e.detach(e.A, gone.Ref())
	lost := generated(socket("four", "s"), one.Generation)

	got := e.ping(e.B, e.far, old, one, gone, two, lost, one, old)
	want := []bool{false, true, false, true, true, true, false}
	if !slices.Equal(got, want) {
		e.Fatalf("Ping = %v, want %v: one entry per argument, in their order, the same host twice or not", got, want)
	}
}

func pingOfNothing(e *env) {
	e.ping(e.A, e.far)
}

func pingWritesALostRow(e *env) {
	generation := e.attach(socket("another", "s")).Generation
	lost := generated(socket("h", "s"), generation)
	e.wantPing(e.A, lost, true, "neither a row nor a tombstone stands")
	got := e.currentOn(e.B, "h", "s", "a lost row is written again")
	if got.LastPing.IsZero() {
		e.Fatalf("LastPing of a row that was written again is zero; Ping sets it by the Store's clock")
	}
	lost.LastPing = got.LastPing
	e.wantSame(got, lost, "a lost row is written again as it was, with its generation")

	c := e.claim(e.B, socket("h", "s"), e.far)
	e.wantSame(c.Current, got, "Claim repeated for a socket that Ping wrote again changes nothing")
}

func pingWritesAnExpiredRow(e *env) {
	a := e.claim(e.A, socket("h", "s"), e.Tick).Current
	e.advance(e.Tick + e.slow)
	e.wantNone("h", "its ttl has run out")
	e.wantPing(e.B, a, true, "an expired row counts as lost, and nothing newer stands")
	got := e.wantCurrent("h", "s", "a lost row is written again")
	a.LastPing = got.LastPing
	e.wantSame(got, a, "a lost row is written again as it was, with its generation")
}

func pingNewestWins(e *env) {
	older := e.attach(socket("h", "older"))
	newer := generated(socket("h", "newer"), older.Generation+1000)
	e.wantPing(e.B, newer, true, "a row of an older generation means that the Store lost writes: the newest wins")
	e.wantCurrent("h", "newer", "the newest generation wins")
	e.wantPing(e.A, older, false, "an older generation never wins")
	e.wantLate(e.A, socket("h", "older"), "what the newer generation had replaced is retired")
	e.wantCurrent("h", "newer", "the newest generation wins")

	// In the other order.
	e.wantPing(e.A, generated(socket("g", "newer"), newer.Generation), true, "nothing stands")
	e.wantPing(e.B, generated(socket("g", "older"), older.Generation), false, "a newer row stands")
	e.wantCurrent("g", "newer", "the newest generation wins, whichever is written first")
}

func pingSplitBrain(e *env) {
	a := e.attach(socket("h", "stored"))
	twin := generated(socket("h", "twin"), a.Generation)
	e.wantPing(e.B, twin, false, "of two sockets with one generation the one that is stored is current")
	e.wantPing(e.B, a, true, "of two sockets with one generation the one that is stored is current")
	e.wantCurrent("h", "stored", "the Ping of a retired socket changes nothing")
}

func pingAfterSuccessorExpired(e *env) {
	first := e.attach(socket("h", "first"))
	e.claim(e.A, socket("h", "second"), e.Tick)
	e.advance(e.Tick + e.slow)
	e.wantPing(e.B, first, false, "a replaced socket is retired for ever, also when its successor has expired")
	e.wantNone("h", "nothing is current")
}

func pingUnderTombstone(e *env) {
	first := e.attach(socket("h", "first"))
	second := e.attach(socket("h", "second"))
	e.detach(e.A, second.Ref())
	e.wantPing(e.B, second, false, "no Ping brings a detached socket back")
	e.wantPing(e.B, first, false, "no Ping writes under a newer tombstone")
	e.wantPing(e.B, generated(socket("h", "twin"), second.Generation), false, "no Ping writes where a tombstone of the same generation stands")
	e.wantNone("h", "Retired is for ever")

	revoked := e.attach(socket("h", "third"))
	e.retire(e.A, revoked.Ref(), store.ReasonRevoked)
	e.wantPing(e.B, revoked, false, "no Ping brings a retired socket back")
	e.wantNone("h", "Retired is for ever")
}

func pingOverOlderTombstone(e *env) {
	first := e.attach(socket("h", "first"))
	e.detach(e.A, first.Ref())
	newer := generated(socket("h", "newer"), first.Generation+1000)
	e.wantPing(e.B, newer, true, "a tombstone of an older generation does not stand in the way")
	e.wantCurrent("h", "newer", "a lost row is written again")
	e.wantPing(e.B, first, false, "it is retired")
	e.wantLate(e.A, socket("h", "first"), "the tombstone stands also under a successor")
}

func pingDoesNotKeepSuccessor(e *env) {
	first := e.attach(socket("h", "first"))
	ttl := 2 * e.Tick
	e.claim(e.A, socket("h", "second"), ttl)
	e.advance(e.Tick)
	e.wantPing(e.B, first, false, "it was replaced")
	e.advance(e.Tick + e.slow)
	e.wantNone("h", "the Ping of a replaced socket does not prolong its successor")
}
