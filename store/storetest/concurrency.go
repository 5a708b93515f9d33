package storetest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/dialback/dialback/store"
)

var concurrencyCases = []testCase{
	{name: "ConcurrentClaimsFormOneChain", run: concurrentClaims},
	{name: "ConcurrentClaimsOfOneSocketGetOneAnswer", run: concurrentRepeats},
	{name: "RetireBeatsConcurrentPings", run: retireAgainstPings},
	{name: "LateDetachesNeverTouchASuccessor", run: lateDetaches},
	{name: "OneOfConcurrentIncarnationsHoldsTheNode", run: concurrentIncarnations},
	{name: "AllMethodsMayBeCalledAtOnce", run: allAtOnce},
}

// parallel is how many goroutines a case starts.
const parallel = 16

// each runs f for 0 to parallel-1 at once, on A and B in turn. f must not call
// Fatalf; it returns what went wrong.
func (e *env) each(f func(i int, s store.Store) error) {
	e.Helper()
	errs := make([]error, parallel)
	var wg sync.WaitGroup
	for i := range parallel {
		s := e.A
		if i%2 == 1 {
			s = e.B
		}
		wg.Go(func() { errs[i] = f(i, s) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		e.Fatalf("%v", err)
	}
}

func concurrentClaims(e *env) {
	const perGoroutine = 8
	claims := make([][]store.Claimed, parallel)
	e.each(func(i int, s store.Store) error {
		for n := range perGoroutine {
			c, err := s.Claim(e.ctx, socket("h", fmt.Sprint(i, " ", n)), e.far)
			if err != nil {
				return err
			}
			claims[i] = append(claims[i], c)
		}
		return nil
	})
	byID := make(map[string]store.Claimed)
	replaced := make(map[string]string)
	for _, cs := range claims {
		for _, c := range cs {
			byID[c.Current.ID] = c
			if by, twice := replaced[c.Previous.ID]; twice {
				e.Fatalf("both %q and %q say that they replaced %q; each Claim is one change", by, c.Current.ID, c.Previous.ID)
			}
			replaced[c.Previous.ID] = c.Current.ID
		}
	}
	for _, c := range byID {
		prev, ok := byID[c.Previous.ID]
		if c.Previous.ID == "" {
			continue
		}
		if !ok || prev.Current.Generation != c.Previous.Generation || c.Previous.Generation >= c.Current.Generation {
			e.Fatalf("%q of generation %d replaced %q of generation %d; want what was claimed before, with a lower one",
				c.Current.ID, c.Current.Generation, c.Previous.ID, c.Previous.Generation)
		}
	}
	if _, ok := replaced[""]; !ok || len(replaced) != parallel*perGoroutine {
		e.Fatalf("%d sockets were replaced, want each but the last, and nothing once", len(replaced))
	}
	last, err := e.A.Current(e.ctx, "h")
	if err != nil || replaced[last.ID] != "" {
		e.Fatalf("Current = %q, %v, want the one socket that none replaced", last.ID, err)
	}
}

func concurrentRepeats(e *env) {
	e.attach(socket("h", "first"))
	claims := make([]store.Claimed, parallel)
	e.each(func(i int, s store.Store) (err error) {
		claims[i], err = s.Claim(e.ctx, socket("h", "second"), e.far)
		return err
	})
	for _, c := range claims {
		if c.Current.Generation != claims[0].Current.Generation || c.Previous.ID != "first" {
			e.Fatalf("Claim repeated = generation %d, previous %q, want %d, %q: every repetition gets the same answer",
				c.Current.Generation, c.Previous.ID, claims[0].Current.Generation, "first")
		}
	}
}

func retireAgainstPings(e *env) {
	a := e.attach(socket("h", "s"))
	e.each(func(i int, s store.Store) error {
		if i == 0 {
			return s.Retire(e.ctx, a.Ref(), store.ReasonRevoked)
		}
		for range 8 {
			if _, err := s.Ping(e.ctx, []store.Attachment{a}, e.far); err != nil {
				return err
			}
		}
		return nil
	})
	e.wantNone("h", "no Ping, however close, brings a retired socket back")
	e.wantPing(e.A, a, false, "it is retired")
	e.wantReason("h", store.ReasonRevoked, "no Ping, however close, removes a tombstone")
}

func lateDetaches(e *env) {
	// Each detaches what it replaced at once, and again when the last socket
	// has been claimed.
	replaced := make([]store.Attachment, parallel)
	e.each(func(i int, s store.Store) error {
		c, err := s.Claim(e.ctx, socket("h", fmt.Sprint("s", i)), e.far)
		if err != nil || c.Previous.ID == "" {
			return err
		}
		replaced[i] = c.Previous
		return s.Detach(e.ctx, c.Previous.Ref())
	})
	e.each(func(i int, s store.Store) error {
		if replaced[i].ID == "" {
			return nil
		}
		return s.Detach(e.ctx, replaced[i].Ref())
	})
	if _, err := e.A.Current(e.ctx, "h"); err != nil {
		e.Fatalf("Current = %v after every socket but the last was replaced and detached late; a late Detach touches no successor", err)
	}
}

func concurrentIncarnations(e *env) {
	held := make([]bool, parallel)
	e.each(func(i int, s store.Store) error {
		n := nodeOf("n", fmt.Sprint(i))
		for range 4 {
			_, err := s.KeepNode(e.ctx, n, e.far)
			held[i] = err == nil
			if err != nil && !errors.Is(err, store.ErrRetired) {
				return err
			}
		}
		return nil
	})
	ns, err := e.B.Nodes(e.ctx)
	if err != nil || len(ns) != 1 {
		e.Fatalf("Nodes = %+v, %v, want one", ns, err)
	}
	for i := range parallel {
		n := nodeOf("n", fmt.Sprint(i))
		if n.Incarnation != ns[0].Incarnation {
			e.wantRefused(e.A, n, "every incarnation but one has been replaced")
		} else if !held[i] {
			e.Fatalf("the incarnation that holds the node was told ErrRetired")
		}
	}
}

func allAtOnce(e *env) {
	e.each(func(i int, s store.Store) error {
		host := fmt.Sprint("h", i%4)
		for n := range 4 {
			c, err := s.Claim(e.ctx, socket(host, fmt.Sprint(i, " ", n)), e.far)
			if err != nil {
				return err
			}
			for _, cl := range validCalls(c.Current, e.far) {
				switch err := cl.call(e.ctx, s); {
				case err == nil, errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrRetired):
				default:
					return fmt.Errorf("%s: %w", cl.name, err)
				}
			}
		}
		return nil
	})
}
