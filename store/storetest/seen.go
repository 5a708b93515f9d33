package storetest

import "github.com/dialback/dialback/store"

var seenCases = []testCase{
	{name: "LastSeenOfAnAttachedHost", run: lastSeenAttached},
	{name: "LastSeenOfAHostThatLeft", run: lastSeenLeft},
	{name: "LastSeenSaysHowLongAHostHasBeenGone", run: lastSeenLeftFor},
	{name: "LastSeenOfAHostThatCameBack", run: lastSeenBack},
	{name: "LastSeenOfAnExpiredRowIsNotAttached", run: lastSeenExpired},
	{name: "LastSeenLeavesOutUnknownHosts", run: lastSeenUnknown},
}

func lastSeenAttached(e *env) {
	a := e.attach(socket("h", "s"))
	e.tick()
	e.wantPing(e.A, a, true, "it is current")
	a = e.wantCurrent("h", "s", "it is current")
	s, ok := e.seen("h")
	if !ok || !s.Attached || s.NodeID != a.NodeID || s.Incarnation != a.Incarnation || s.Generation != a.Generation || s.Reason != "" {
		e.Fatalf("LastSeen = %+v, %v, want attached as %+v", s, ok, a)
	}
	if !sameTime(s.LastPing, a.LastPing) {
		e.Fatalf("LastSeen says %v, Current says %v", s.LastPing, a.LastPing)
	}
}

func lastSeenLeft(e *env) {
	a := e.attach(socket("h", "s"))
	e.tick()
	e.wantPing(e.A, a, true, "it is current")
	pinged := e.wantCurrent("h", "s", "it is current").LastPing
	e.tick()
	e.detach(e.A, a.Ref())
	s, ok := e.seen("h")
	if !ok || s.Attached || s.Generation != a.Generation || s.Reason != store.ReasonGone {
		e.Fatalf("LastSeen = %+v, %v, want not attached, generation %d, gone", s, ok, a.Generation)
	}
	if !sameTime(s.LastPing, pinged) {
		e.Fatalf("LastSeen says %v, want %v: a tombstone keeps the last ping, not the time of its end", s.LastPing, pinged)
	}
}

func lastSeenLeftFor(e *env) {
	a := e.attach(socket("h", "s"))
	e.advance(3 * e.Tick)
	e.detach(e.A, a.Ref())
	s, ok := e.seen("h")
	if !ok || s.LeftFor < 0 || s.LeftFor >= 2*e.Tick {
		e.Fatalf("LastSeen says that a host that has just left left %v ago", s.LeftFor)
	}
	e.advance(3 * e.Tick)
	if s, ok = e.seen("h"); !ok || s.LeftFor < 2*e.Tick {
		e.Fatalf("LastSeen says %v ago of a host that left %v ago", s.LeftFor, 3*e.Tick)
	}
	e.attach(socket("h", "t"))
	if s, ok = e.seen("h"); !ok || s.LeftFor != 0 {
		e.Fatalf("LastSeen says that an attached host left %v ago", s.LeftFor)
	}
}

func lastSeenBack(e *env) {
	a := e.attach(socket("h", "s"))
	e.retire(e.A, a.Ref(), store.ReasonRevoked)
	b := e.attach(socket("h", "t"))
	s, ok := e.seen("h")
	if !ok || !s.Attached || s.Generation != b.Generation || s.Reason != "" {
		e.Fatalf("LastSeen = %+v, %v, want attached with generation %d: a tombstone does not hide a successor", s, ok, b.Generation)
	}
}

func lastSeenExpired(e *env) {
	a := e.claim(e.A, socket("h", "s"), e.Tick).Current
	e.advance(e.Tick + e.slow)
	s, ok := e.seen("h")
	if ok && (s.Attached || s.Reason != "" || s.Generation != a.Generation || !sameTime(s.LastPing, a.LastPing)) {
		e.Fatalf("LastSeen = %+v, want not attached with the last ping and no reason, or left out", s)
	}
}

func lastSeenUnknown(e *env) {
	e.attach(socket("one", "s"))
	two := e.attach(socket("two", "s"))
	e.detach(e.A, two.Ref())
	m, err := e.B.LastSeen(e.ctx, []string{"one", "nobody", "two", "one"})
	if err != nil {
		e.Fatalf("LastSeen = %v, want no error", err)
	}
	if len(m) != 2 || !m["one"].Attached || m["two"].Attached || m["two"].Reason != store.ReasonGone {
		e.Fatalf("LastSeen = %+v, want one attached, two gone, and nothing of the host that nobody claimed", m)
	}
	if m, err = e.B.LastSeen(e.ctx, nil); err != nil || m == nil || len(m) != 0 {
		e.Fatalf("LastSeen of nobody = %v, %v, want an empty map that is not nil", m, err)
	}
}
