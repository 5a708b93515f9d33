package storetest

import (
	"fmt"
	"time"

	"github.com/dialback/dialback/store"
)

var claimCases = []testCase{
	{name: "UnknownHostIsNotFound", run: unknownHostIsNotFound},
	{name: "ClaimIsVisibleOnEveryNode", run: claimIsVisibleOnEveryNode},
	{name: "ClaimIgnoresWhatTheStoreSets", run: claimIgnoresWhatTheStoreSets},
	{name: "ClaimRetiresTheCurrentOne", run: claimRetiresTheCurrentOne},
	{name: "ClaimRepeatedGivesTheSameAnswer", run: claimRepeatedGivesTheSameAnswer},
	{name: "ClaimRepeatedAfterAPingStillNamesThePrevious", run: claimRepeatedAfterPing},
	{name: "ClaimOfTheReplacedSocketIsLate", run: claimOfReplacedIsLate},
	{name: "ClaimOfARetiredSocketIsLate", run: claimOfRetiredIsLate},
	{name: "ClaimOfTheSocketBeforeTheTombstoneIsLate", run: claimBeforeTombstoneIsLate},
	{name: "ClaimOfARetiredSocketIsLateUnderItsSuccessor", run: claimOfRetiredIsLateUnderSuccessor},
	{name: "ClaimOfEachOfTheLastThatWereRetiredIsLate", run: claimOfEachOfTheLastRetiredIsLate},
	{name: "ClaimOfASocketThatHadExpiredAndWasReplacedIsLate", run: claimOfExpiredAndReplacedIsLate},
	{name: "ClaimOfTheSameInstanceWithALowerSeqIsLate", run: claimWithLowerSeqIsLate},
	{name: "ClaimOfAnotherOrNoInstanceIsNotLate", run: claimOfAnotherInstanceIsNotLate},
	{name: "GenerationsGrowAcrossRetireAndDetach", run: generationsGrowAcrossRetire},
	{name: "GenerationsGrowAcrossExpiry", run: generationsGrowAcrossExpiry},
	{name: "GenerationsGrowWhenTheClockIsBehind", run: generationsGrowWhenClockIsBehind},
	{name: "ARowExpiresAtItsDeadline", run: rowExpiresAtItsDeadline, timed: true},
	{name: "ATTLIsNeverRoundedDown", run: ttlIsNeverRoundedDown, timed: true},
	{name: "ATTLBelowAMillisecondIsATTL", run: tinyTTL},
	{name: "AnExpiredAttachmentIsNoPrevious", run: expiredIsNoPrevious},
	{name: "HostsDoNotTouchEachOther", run: hostsDoNotTouchEachOther},
}

func unknownHostIsNotFound(e *env) {
	e.wantNone("h", "a host that nobody claimed is ErrNotFound")
}

func claimIsVisibleOnEveryNode(e *env) {
	a := socket("h", "s")
	c := e.claim(e.A, a, e.far)
	if c.Current.Generation == 0 || c.Current.LastPing.IsZero() {
		e.Fatalf("Claim = %+v, want Generation and LastPing set by the Store", c.Current)
	}
	if c.Previous.ID != "" {
		e.Fatalf("the first Claim retired %+v, want the zero Attachment", c.Previous)
	}
	a.Generation, a.LastPing = c.Current.Generation, c.Current.LastPing
	e.wantSame(c.Current, a, "Claim returns the attachment as it was given")
	e.wantSame(e.currentOn(e.B, "h", "s", "when Claim returns every node sees it"), a,
		"Current returns the attachment as Claim did")
}

func claimIgnoresWhatTheStoreSets(e *env) {
	e.attach(socket("h", "s"))
	a := socket("h", "t")
	a.Generation = 3
	a.LastPing = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
	a.Retired, a.RetiredReason = true, store.ReasonStale
	got := e.attach(a)
	if got.Generation == 3 || got.LastPing.Equal(a.LastPing) || got.Retired || got.RetiredReason != "" {
		e.Fatalf("Claim = %+v; Generation, LastPing, Retired and RetiredReason are the Store's to set", got)
	}
	e.wantSame(e.wantCurrent("h", "t", "it was claimed"), got, "Current says what Claim said")
}

func claimRetiresTheCurrentOne(e *env) {
	first := e.attach(socket("h", "first"))
	c := e.claim(e.B, socket("h", "second"), e.far)
	if c.Current.Generation <= first.Generation {
		e.Fatalf("generation %d after %d; generations of a host only grow", c.Current.Generation, first.Generation)
	}
	want := first
	want.Retired, want.RetiredReason = true, store.ReasonReplaced
	e.wantSame(c.Previous, want, "Claim returns the attachment that it retired, marked so")
	e.wantCurrent("h", "second", "the claim replaced the first")
	e.wantPing(e.A, first, false, "the holder of a replaced socket hears of it at its next Ping")
	e.wantCurrent("h", "second", "the Ping of a replaced socket changes nothing")
}

func claimRepeatedGivesTheSameAnswer(e *env) {
	e.attach(socket("h", "first"))
	c := e.claim(e.A, socket("h", "second"), e.far)
	again := socket("h", "second")
	again.NodeID, again.Incarnation, again.Meta = "elsewhere", "another", []byte("other")
	for range 2 {
		got := e.claim(e.B, again, e.far)
		e.wantSame(got.Current, c.Current, "Claim repeated for the current socket changes nothing")
		e.wantSame(got.Previous, c.Previous, "Claim repeated for the current socket names the same previous one")
	}
	e.wantSame(e.wantCurrent("h", "second", "it is still current"), c.Current, "a repeated Claim changes nothing")
}

func claimRepeatedAfterPing(e *env) {
	e.attach(socket("h", "first"))
	c := e.claim(e.A, socket("h", "second"), e.far)
	e.wantPing(e.B, c.Current, true, "it is current")
	got := e.claim(e.A, socket("h", "second"), e.far)
	if got.Current.Generation != c.Current.Generation || got.Previous.ID != "first" {
		e.Fatalf("Claim repeated = generation %d, previous %q, want %d, %q: the answer stays the same while the socket is current",
			got.Current.Generation, got.Previous.ID, c.Current.Generation, "first")
	}
}

func claimOfReplacedIsLate(e *env) {
	e.attach(socket("h", "first"))
	c := e.claim(e.A, socket("h", "second"), e.far)
	e.wantLate(e.B, socket("h", "first"), "a replaced socket is retired for ever")
	e.wantSame(e.wantCurrent("h", "second", "a late Claim changes nothing"), c.Current, "a late Claim changes nothing")
	e.wantSame(e.claim(e.A, socket("h", "second"), e.far).Previous, c.Previous, "a late Claim changes nothing")
}

func claimOfRetiredIsLate(e *env) {
	retired := e.attach(socket("h1", "s"))
	e.retire(e.A, retired.Ref(), store.ReasonRevoked)
	e.wantLate(e.B, socket("h1", "s"), "a retired socket is retired for ever")
	e.wantNone("h1", "a late Claim changes nothing")

	detached := e.attach(socket("h2", "s"))
	e.detach(e.A, detached.Ref())
	e.wantLate(e.B, socket("h2", "s"), "a detached socket is retired for ever")
	e.wantNone("h2", "a late Claim changes nothing")
}

func claimBeforeTombstoneIsLate(e *env) {
	e.attach(socket("h", "first"))
	second := e.attach(socket("h", "second"))
	e.detach(e.B, second.Ref())
	e.wantLate(e.A, socket("h", "first"), "the end of a successor does not bring back what it replaced")
	e.wantNone("h", "a late Claim changes nothing")
}

func claimOfRetiredIsLateUnderSuccessor(e *env) {
	first := e.attach(socket("h", "first"))
	e.retire(e.A, first.Ref(), store.ReasonStale)
	c := e.claim(e.B, socket("h", "second"), e.far)
	if c.Previous.ID != "" {
		e.Fatalf("Claim after Retire names %q as retired by this claim; it was retired before", c.Previous.ID)
	}
	e.wantLate(e.A, socket("h", "first"), "a tombstone stands also under a successor")
	e.wantCurrent("h", "second", "a late Claim changes nothing")
}

func claimOfEachOfTheLastRetiredIsLate(e *env) {
	ends := map[string]func(a store.Attachment){
		"replaced": func(store.Attachment) {},
		"detached": func(a store.Attachment) { e.detach(e.B, a.Ref()) },
		"retired":  func(a store.Attachment) { e.retire(e.B, a.Ref(), store.ReasonStale) },
	}
	for host, end := range ends {
		for i := range store.RetiredKept {
			end(e.attach(socket(host, fmt.Sprint("s", i))))
		}
		last := e.attach(socket(host, "last"))
		for i := range store.RetiredKept {
			e.wantLate(e.A, socket(host, fmt.Sprint("s", i)), "a socket that was "+host+" is retired for ever: a Store knows the last RetiredKept")
		}
		e.wantSame(e.wantCurrent(host, "last", "a late Claim changes nothing"), last, "a late Claim changes nothing")
		e.detach(e.B, last.Ref())
		e.wantLate(e.A, socket(host, "s1"), "the end of the last one brings back none")
	}
}

func claimOfExpiredAndReplacedIsLate(e *env) {
	e.claim(e.A, socket("h", "first"), e.Tick)
	e.advance(e.Tick + e.slow)
	e.claim(e.A, socket("h", "first"), e.Tick) // it may be: nothing came after it
	e.advance(e.Tick + e.slow)
	e.attach(socket("h", "second"))
	e.wantLate(e.B, socket("h", "first"), "a newer generation was given: the older socket is retired, had it expired or not")
	e.attach(socket("h", "third"))
	e.wantLate(e.B, socket("h", "first"), "it stays retired")
	e.wantCurrent("h", "third", "a late Claim changes nothing")
}

func claimWithLowerSeqIsLate(e *env) {
	const rule = "a Claim of the same instance with a lower seq comes late"
	current := e.attach(agentSocket("h", "five", "agent", 5))
	e.wantLate(e.B, agentSocket("h", "four", "agent", 4), rule+" (against the current one)")
	e.wantSame(e.wantCurrent("h", "five", rule), current, "a late Claim changes nothing")

	other := e.attach(agentSocket("h", "other", "another agent", 1))
	e.wantLate(e.B, agentSocket("h", "four", "agent", 4), rule+" (against the previous one)")
	e.wantCurrent("h", "other", rule)

	e.detach(e.A, other.Ref())
	e.wantLate(e.B, agentSocket("h", "zero", "another agent", 0), rule+" (against the tombstone)")
	e.wantNone("h", rule)

	e.attach(agentSocket("h", "two", "another agent", 2))
}

func claimOfAnotherInstanceIsNotLate(e *env) {
	for i, a := range []store.Attachment{
		agentSocket("h", "0", "agent", 5),
		agentSocket("h", "1", "agent", 5), // not lower
		agentSocket("h", "2", "agent", 6),
		agentSocket("h", "3", "another agent", 0),
		agentSocket("h", "4", "", 9),
		agentSocket("h", "5", "", 0), // no instance, no order
		agentSocket("h", "6", "agent", 1<<53-1),
	} {
		if _, err := e.A.Claim(e.ctx, a, e.far); err != nil {
			e.Fatalf("Claim %d = %v, want no error: only the same instance with a higher seq makes a Claim late", i, err)
		}
	}
}

func generationsGrowAcrossRetire(e *env) {
	var last uint64
	for i := range 6 {
		a := e.attach(socket("h", fmt.Sprint("s", i)))
		if a.Generation <= last {
			e.Fatalf("generation %d after %d; generations of a host only grow, also across Retire and Detach", a.Generation, last)
		}
		last = a.Generation
		if i%2 == 0 {
			e.detach(e.B, a.Ref())
		} else {
			e.retire(e.B, a.Ref(), store.ReasonStale)
		}
	}
}

func generationsGrowAcrossExpiry(e *env) {
	var last uint64
	for i := range 3 {
		a := e.claim(e.A, socket("h", fmt.Sprint("s", i)), e.Tick).Current
		if a.Generation <= last {
			e.Fatalf("generation %d after %d; generations of a host only grow, also across expiry", a.Generation, last)
		}
		last = a.Generation
		e.advance(e.Tick + e.slow)
		e.wantNone("h", "its ttl has run out")
	}
}

func generationsGrowWhenClockIsBehind(e *env) {
	const hours = 3_600_000_000 // in microseconds
	now := e.attach(socket("another", "s")).Generation
	ahead := generated(socket("h", "ahead"), now+10*hours)
	e.wantPing(e.A, ahead, true, "a lost row is written again")
	a := e.attach(socket("h", "next"))
	if a.Generation <= ahead.Generation {
		e.Fatalf("generation %d after %d; one more than the highest that is remembered, if the clock is behind it", a.Generation, ahead.Generation)
	}
	e.detach(e.B, a.Ref())
	if g := e.attach(socket("h", "last")).Generation; g <= a.Generation {
		e.Fatalf("generation %d after %d was detached; a tombstone's generation counts as well", g, a.Generation)
	}
}

func rowExpiresAtItsDeadline(e *env) {
	ttl := 4 * e.Tick
	e.claim(e.A, socket("h", "s"), ttl)
	e.advanceWithin(ttl)
	e.wantCurrent("h", "s", "its ttl has not run out")
	e.advanceToEnd(ttl)
	e.wantNone("h", "at its deadline a row counts as expired")
}

func ttlIsNeverRoundedDown(e *env) {
	if !e.Fast { // no sleep is so exact
		e.claim(e.A, socket("h", "s"), 4*e.Tick+500*time.Microsecond)
		e.advance(2 * e.Tick)
		e.wantCurrent("h", "s", "its ttl has not run out")
		return
	}
	e.claim(e.A, socket("h", "s"), e.Tick+500*time.Microsecond)
	e.advance(e.Tick)
	e.wantCurrent("h", "s", "a ttl may be rounded up to the millisecond, never down")
	e.advance(time.Millisecond)
	e.wantNone("h", "a ttl is rounded up by no more than a millisecond")
}

func tinyTTL(e *env) {
	e.claim(e.A, socket("h", "s"), time.Nanosecond)
	e.advance(time.Millisecond + e.slow)
	e.wantNone("h", "a ttl below a millisecond is not for ever")
}

func expiredIsNoPrevious(e *env) {
	e.claim(e.A, socket("h", "first"), e.Tick)
	e.advance(e.Tick + e.slow)
	if c := e.claim(e.B, socket("h", "second"), e.far); c.Previous.ID != "" {
		e.Fatalf("Claim names %q as retired by this claim; it had expired, so it counts as absent", c.Previous.ID)
	}
	e.wantCurrent("h", "second", "it was claimed")
}

func hostsDoNotTouchEachOther(e *env) {
	// The same socket ID, so that only the host tells them apart.
	one := e.attach(socket("one", "s"))
	two := e.attach(socket("two", "s"))
	e.wantSame(e.wantCurrent("one", "s", "it was claimed"), one, "another host's Claim changes nothing")
	e.detach(e.B, one.Ref())
	e.wantNone("one", "it was detached")
	e.wantSame(e.wantCurrent("two", "s", "it was claimed"), two, "another host's Detach changes nothing")
	e.wantPing(e.B, two, true, "another host's tombstone does not count")
}
