package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/dialback/dialback/store"
)

// tb is what cases need of a *testing.T.
type tb interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Context() context.Context
}

// recorder is a tb that keeps what failed.
type recorder struct {
	ctx      context.Context
	failures []string
}

// record runs f, which may call Fatalf, and returns what failed.
func record(ctx context.Context, f func(tb)) []string {
	r := &recorder{ctx: ctx}
	done := make(chan struct{})
	go r.run(f, done)
	<-done
	return r.failures
}

func (r *recorder) run(f func(tb), done chan<- struct{}) {
	defer close(done)
	f(r)
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// env is what a case works with: the two handles, the clock, and calls that
// must not fail.
type env struct {
	tb
	Fixture
	ctx  context.Context
	far  time.Duration // a ttl that does not end within a case
	slow time.Duration // what a deadline may be late by

	start    time.Time
	advanced time.Duration
}

func newEnv(t tb, f Fixture) *env {
	e := &env{tb: t, Fixture: f, ctx: t.Context(), far: 1000 * f.Tick, start: time.Now()}
	if !f.Fast {
		e.slow = 5 * time.Millisecond
	}
	return e
}

// advance makes d pass.
func (e *env) advance(d time.Duration) {
	e.advanced += d
	e.Advance(d)
}

// advanceWithin goes to the last moment at which something of that ttl must
// still stand: a millisecond before its deadline if time can be stopped there,
// else half of it.
func (e *env) advanceWithin(ttl time.Duration) {
	if e.Fast {
		e.advance(ttl - time.Millisecond)
	} else {
		e.advance(ttl / 2)
	}
}

// advanceToEnd goes from where advanceWithin went to the deadline.
func (e *env) advanceToEnd(ttl time.Duration) {
	if e.Fast {
		e.advance(time.Millisecond)
	} else {
		e.advance(ttl - ttl/2 + e.slow)
	}
}

// delay returns how much more time has passed than the case asked for.
func (e *env) delay() time.Duration { return time.Since(e.start) - e.advanced }

// tick lets the clock of every backend move: one whose clock is not that of
// Advance has the time of day.
func (e *env) tick() {
	e.advance(e.Tick)
	time.Sleep(2 * time.Millisecond)
}

// socket returns an attachment of role host with every field set.
func socket(hostID, id string) store.Attachment {
	return store.Attachment{
		ID:          id,
		HostID:      hostID,
		NodeID:      "node of " + id,
		Incarnation: "incarnation of " + id,
		Role:        store.RoleHost,
		Proto:       3,
		Instance:    "instance of " + id,
		Seq:         7,
		ConnectedAt: time.Date(2024, 2, 29, 12, 30, 45, 123_000_000, time.UTC),
		Meta:        []byte("meta of " + id),
	}
}

// agentSocket is a socket of the agent process instance.
func agentSocket(hostID, id, instance string, seq uint64) store.Attachment {
	a := socket(hostID, id)
	a.Instance, a.Seq = instance, seq
	return a
}

// generated returns a as if a Store had given it that generation.
func generated(a store.Attachment, generation uint64) store.Attachment {
	a.Generation = generation
	return a
}

// streamSocket returns an attachment of role client or dial.
func streamSocket(role store.Role, hostID, id string) store.Attachment {
	a := socket(hostID, id)
	a.Role = role
	a.Instance, a.Seq = "", 0
	a.StreamID = "stream of " + id
	return a
}

func (e *env) claim(s store.Store, a store.Attachment, ttl time.Duration) store.Claimed {
	e.Helper()
	c, err := s.Claim(e.ctx, a, ttl)
	if err != nil {
		e.Fatalf("Claim(%s) = %v, want no error", a.ID, err)
	}
	return c
}

// attach claims a on A for a long time and returns it as the Store has it.
func (e *env) attach(a store.Attachment) store.Attachment {
	e.Helper()
	return e.claim(e.A, a, e.far).Current
}

func (e *env) retire(s store.Store, ref store.Ref, reason store.Reason) {
	e.Helper()
	if err := s.Retire(e.ctx, ref, reason); err != nil {
		e.Fatalf("Retire(%+v, %s) = %v; the contract says nil, also when there is nothing to do", ref, reason, err)
	}
}

func (e *env) detach(s store.Store, ref store.Ref) {
	e.Helper()
	if err := s.Detach(e.ctx, ref); err != nil {
		e.Fatalf("Detach(%+v) = %v; the contract says nil, also when there is nothing to do", ref, err)
	}
}

func (e *env) ping(s store.Store, ttl time.Duration, as ...store.Attachment) []bool {
	e.Helper()
	current, err := s.Ping(e.ctx, as, ttl)
	if err != nil {
		e.Fatalf("Ping = %v, want no error", err)
	}
	if len(current) != len(as) {
		e.Fatalf("Ping of %d attachments gave %d results; the contract says one for each", len(as), len(current))
	}
	return current
}

// wantPing pings a on s and wants to hear whether it is current.
func (e *env) wantPing(s store.Store, a store.Attachment, want bool, rule string) {
	e.Helper()
	if got := e.ping(s, e.far, a)[0]; got != want {
		e.Fatalf("Ping(%s) says current is %v, want %v: %s", a.ID, got, want, rule)
	}
}

// wantLate claims a on s and wants ErrRetired.
func (e *env) wantLate(s store.Store, a store.Attachment, rule string) {
	e.Helper()
	if c, err := s.Claim(e.ctx, a, e.far); !errors.Is(err, store.ErrRetired) {
		e.Fatalf("Claim(%s) = generation %d, %v, want ErrRetired: %s", a.ID, c.Current.Generation, err, rule)
	}
}

// wantCurrent wants the socket of that ID to be current on both nodes.
func (e *env) wantCurrent(hostID, id, rule string) store.Attachment {
	e.Helper()
	a := e.currentOn(e.A, hostID, id, rule)
	e.currentOn(e.B, hostID, id, rule)
	return a
}

func (e *env) currentOn(s store.Store, hostID, id, rule string) store.Attachment {
	e.Helper()
	a, err := s.Current(e.ctx, hostID)
	if err != nil {
		e.Fatalf("Current(%s) = %v, want socket %q: %s", hostID, err, id, rule)
	}
	if a.ID != id {
		e.Fatalf("Current(%s) = socket %q, want %q: %s", hostID, a.ID, id, rule)
	}
	return a
}

// wantNone wants no socket to be current on either node.
func (e *env) wantNone(hostID, rule string) {
	e.Helper()
	for _, s := range []store.Store{e.A, e.B} {
		if a, err := s.Current(e.ctx, hostID); !errors.Is(err, store.ErrNotFound) {
			e.Fatalf("Current(%s) = socket %q, %v, want ErrNotFound: %s", hostID, a.ID, err, rule)
		}
	}
}

// seen returns what B remembers of the host.
func (e *env) seen(hostID string) (store.Seen, bool) {
	e.Helper()
	m, err := e.B.LastSeen(e.ctx, []string{hostID})
	if err != nil {
		e.Fatalf("LastSeen(%s) = %v, want no error", hostID, err)
	}
	s, ok := m[hostID]
	return s, ok
}

// wantReason wants the host to be remembered as retired for that reason.
func (e *env) wantReason(hostID string, want store.Reason, rule string) {
	e.Helper()
	s, ok := e.seen(hostID)
	if !ok || s.Attached || s.Reason != want {
		e.Fatalf("LastSeen(%s) = %+v, %v, want not attached, reason %q: %s", hostID, s, ok, want, rule)
	}
}

// wantSame wants two attachments to be equal but for the location of times and
// what is below a millisecond.
func (e *env) wantSame(got, want store.Attachment, rule string) {
	e.Helper()
	if !sameTime(got.ConnectedAt, want.ConnectedAt) || !sameTime(got.LastPing, want.LastPing) ||
		!slices.Equal(got.Meta, want.Meta) {
		e.Fatalf("got  %+v\nwant %+v: %s", got, want, rule)
	}
	got.ConnectedAt, got.LastPing, got.Meta = want.ConnectedAt, want.LastPing, nil
	want.Meta = nil
	if fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
		e.Fatalf("got  %+v\nwant %+v: %s", got, want, rule)
	}
}

func sameTime(a, b time.Time) bool {
	return a.IsZero() == b.IsZero() && a.Sub(b).Abs() < time.Millisecond
}
