package storetest

import "github.com/dialback/dialback/store"

var lifeCases = []testCase{
	{name: "TheLifeOfAHostInThePackageDocumentation", run: lifeOfAHost, timed: true},
}

// lifeOfAHost is the table under "Writing a backend" in package store, line by
// line.
func lifeOfAHost(e *env) {
	ttl := 6 * e.Tick
	s1 := e.claim(e.A, socket("h", "s1"), ttl)
	if s1.Previous.ID != "" {
		e.Fatalf("the first Claim retired %q", s1.Previous.ID)
	}
	wantPrevious := func(c store.Claimed, id, rule string) {
		e.Helper()
		if c.Previous.ID != id {
			e.Fatalf("Claim(%s) retired %q, want %q: %s", c.Current.ID, c.Previous.ID, id, rule)
		}
	}
	s2 := e.claim(e.B, socket("h", "s2"), ttl)
	wantPrevious(s2, "s1", "it was current")
	wantPrevious(e.claim(e.B, socket("h", "s2"), ttl), "s1", "the reply was lost")
	e.wantPing(e.A, s1.Current, false, "a newer generation stands")
	if !e.ping(e.B, ttl, s2.Current)[0] {
		e.Fatalf("Ping(s2) says retired, but it is current")
	}
	e.advance(ttl + e.slow)
	e.wantNone("h", "the ttl has run out")
	e.wantPing(e.A, s1.Current, false, "a newer generation was given within a day")
	e.wantPing(e.B, s2.Current, true, "it is written again")
	e.detach(e.B, s2.Current.Ref())
	e.wantPing(e.B, s2.Current, false, "its tombstone stands")
	e.wantLate(e.A, socket("h", "s2"), "it is the tombstone's")
	e.wantLate(e.A, socket("h", "s1"), "it is the previous one")
	s3 := e.claim(e.A, socket("h", "s3"), e.far)
	wantPrevious(s3, "", "s2 was retired before")
	e.detach(e.B, s2.Current.Ref())
	e.wantCurrent("h", "s3", "an old Detach touches nothing")
	e.wantLate(e.A, socket("h", "s1"), "it was retired")
}
