package storetest

import (
	"time"

	"github.com/dialback/dialback/store"
)

var tombstoneCases = []testCase{
	{name: "RetireEndsTheAttachmentOnEveryNode", run: retireEndsTheAttachment},
	{name: "DetachEndsTheAttachmentOnEveryNode", run: detachEndsTheAttachment},
	{name: "AStaleGenerationCannotRetireOrDetach", run: staleGenerationCannotRetire},
	{name: "AnotherSocketCannotRetireOrDetach", run: anotherSocketCannotRetire},
	{name: "TheFirstReasonStays", run: firstReasonStays},
	{name: "ANewerTombstoneTakesThePlaceOfAnOlderOne", run: newerTombstone},
	{name: "RetireOfALostRowLeavesATombstone", run: retireOfLostRow},
	{name: "RetireOfAnExpiredRowLeavesATombstone", run: retireOfExpiredRow},
	{name: "RetireTakesAnOlderRowWithIt", run: retireTakesOlderRow},
	{name: "ATombstoneOutlivesTheTTLOfItsRow", run: tombstoneOutlivesTTL},
	{name: "ATombstoneOutlivesASuccessorThatExpired", run: tombstoneOutlivesSuccessor},
	{name: "ATombstoneStandsForADay", run: tombstoneStandsForADay, long: true},
	{name: "AGenerationFencesForADay", run: generationFencesForADay, long: true},
}

func retireEndsTheAttachment(e *env) {
	a := e.attach(socket("h", "s"))
	e.retire(e.B, a.Ref(), store.ReasonStale)
	e.wantNone("h", "a retired socket is never current")
	e.wantReason("h", store.ReasonStale, "the tombstone keeps the reason")
	c := e.claim(e.A, socket("h", "t"), e.far)
	if c.Current.Generation <= a.Generation {
		e.Fatalf("generation %d after %d; generations of a host only grow", c.Current.Generation, a.Generation)
	}
	e.wantCurrent("h", "t", "a new socket of a host may be claimed after Retire")
}

func detachEndsTheAttachment(e *env) {
	a := e.attach(socket("h", "s"))
	e.detach(e.B, a.Ref())
	e.wantNone("h", "a detached socket is never current")
	e.wantReason("h", store.ReasonGone, "Detach is Retire with the reason gone")
}

func staleGenerationCannotRetire(e *env) {
	first := e.attach(socket("h", "first"))
	second := e.attach(socket("h", "second"))
	e.detach(e.B, first.Ref())
	e.wantSame(e.wantCurrent("h", "second", "Detach of a replaced socket touches no successor"), second, "Detach of a replaced socket changes nothing")
	e.retire(e.B, first.Ref(), store.ReasonStale)
	e.wantSame(e.wantCurrent("h", "second", "Retire of a replaced socket touches no successor"), second, "Retire of a replaced socket changes nothing")
	e.wantPing(e.A, second, true, "the successor is current")

	old := second.Ref()
	old.Generation--
	e.detach(e.B, old)
	e.retire(e.B, old, store.ReasonStale)
	e.wantCurrent("h", "second", "the right socket ID under an older generation names nothing")
}

func anotherSocketCannotRetire(e *env) {
	a := e.attach(socket("h", "s"))
	twin := a.Ref()
	twin.ID = "twin"
	e.detach(e.B, twin)
	e.retire(e.B, twin, store.ReasonStale)
	e.wantSame(e.wantCurrent("h", "s", "the right generation with another socket ID names nothing"), a, "it names nothing")
	e.wantPing(e.A, a, true, "it left no tombstone either")
}

func firstReasonStays(e *env) {
	a := e.attach(socket("h", "s"))
	e.retire(e.A, a.Ref(), store.ReasonRevoked)
	e.retire(e.B, a.Ref(), store.ReasonStale)
	e.wantReason("h", store.ReasonRevoked, "a second Retire changes nothing")
	e.detach(e.B, a.Ref())
	e.wantReason("h", store.ReasonRevoked, "Detach after Retire changes nothing")
}

func newerTombstone(e *env) {
	first := e.attach(socket("h", "first"))
	e.retire(e.A, first.Ref(), store.ReasonRevoked)
	second := e.attach(socket("h", "second"))
	e.detach(e.B, second.Ref())
	e.wantReason("h", store.ReasonGone, "the newest tombstone is the one that is remembered")
	e.retire(e.A, first.Ref(), store.ReasonStale)
	e.wantReason("h", store.ReasonGone, "an older one does not take its place")
	e.wantPing(e.A, second, false, "it is retired")
}

func retireOfLostRow(e *env) {
	generation := e.attach(socket("another", "s")).Generation
	lost := generated(socket("h", "s"), generation)
	e.retire(e.A, lost.Ref(), store.ReasonRevoked)
	e.wantReason("h", store.ReasonRevoked, "Retire leaves a tombstone also where the row was lost")
	e.wantPing(e.B, lost, false, "no Ping brings a retired socket back, lost row or not")
	e.wantLate(e.B, socket("h", "s"), "a retired socket is retired for ever")
	e.wantNone("h", "Retired is for ever")
}

func retireOfExpiredRow(e *env) {
	a := e.claim(e.A, socket("h", "s"), e.Tick).Current
	e.advance(e.Tick + e.slow)
	e.wantNone("h", "its ttl has run out")
	e.detach(e.A, a.Ref())
	e.wantPing(e.B, a, false, "Detach leaves a tombstone also where the row has expired")
	e.wantReason("h", store.ReasonGone, "Detach leaves a tombstone also where the row has expired")
}

func retireTakesOlderRow(e *env) {
	older := e.attach(socket("h", "older"))
	newer := generated(socket("h", "newer"), older.Generation+1000)
	e.retire(e.B, newer.Ref(), store.ReasonStale)
	e.wantNone("h", "a row that the retired attachment had replaced, before the Store lost writes, is retired with it")
	e.wantPing(e.A, older, false, "no Ping writes under a newer tombstone")
	e.wantLate(e.A, socket("h", "older"), "it is retired")
}

func tombstoneOutlivesTTL(e *env) {
	a := e.claim(e.A, agentSocket("h", "s", "agent", 2), e.Tick).Current
	e.retire(e.A, a.Ref(), store.ReasonStale)
	e.advance(4 * e.Tick)
	e.wantPing(e.B, a, false, "a tombstone outlives the ttl of its row")
	e.wantLate(e.B, agentSocket("h", "s", "agent", 2), "a tombstone outlives the ttl of its row")
	e.wantLate(e.B, agentSocket("h", "t", "agent", 1), "a tombstone keeps instance and seq")
	e.wantReason("h", store.ReasonStale, "a tombstone outlives the ttl of its row")
}

func tombstoneOutlivesSuccessor(e *env) {
	first := e.attach(socket("h", "first"))
	e.retire(e.A, first.Ref(), store.ReasonStale)
	e.claim(e.A, socket("h", "second"), e.Tick)
	e.advance(e.Tick + e.slow)
	e.wantNone("h", "the successor has expired")
	e.wantPing(e.B, first, false, "no Ping brings a retired socket back")
	e.wantLate(e.B, socket("h", "first"), "a tombstone outlives a successor that expired")
}

func tombstoneStandsForADay(e *env) {
	a := e.attach(socket("h", "s"))
	e.retire(e.A, a.Ref(), store.ReasonStale)
	e.advance(store.TombstoneTTL - time.Second)
	e.wantPing(e.B, a, false, "a tombstone stands for TombstoneTTL")
	e.wantLate(e.B, socket("h", "s"), "a tombstone stands for TombstoneTTL")
	e.wantReason("h", store.ReasonStale, "a tombstone stands for TombstoneTTL")
	e.advance(time.Hour)
	if s, ok := e.seen("h"); ok {
		e.Fatalf("LastSeen = %+v an hour after TombstoneTTL; what a host leaves behind must not stay for ever", s)
	}
}

func generationFencesForADay(e *env) {
	first := e.attach(socket("h", "first"))
	e.claim(e.A, socket("h", "second"), e.Tick)
	e.advance(store.TombstoneTTL - time.Second)
	e.wantNone("h", "the successor has expired")
	e.wantPing(e.B, first, false, "a generation fences older ones for TombstoneTTL, its row expired or not")
	e.wantNone("h", "the Ping of a retired socket changes nothing")
}
