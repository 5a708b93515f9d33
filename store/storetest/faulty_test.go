package storetest_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/memory"
	"github.com/dialback/dialback/store/storetest"
)

var errOutage = errors.New("outage")

func host(id string) store.Attachment {
	return store.Attachment{ID: id, HostID: "h", Role: store.RoleHost}
}

func claim(ctx context.Context, s store.Store, id string) error {
	_, err := s.Claim(ctx, host(id), time.Hour)
	return err
}

// A Faulty without a fault is a Store like any other.
func TestFaulty_Conformance(t *testing.T) {
	storetest.Run(t, storetest.Config{Bubble: true, Open: func(*testing.T) storetest.Fixture {
		f := storetest.NewFaulty(memory.New())
		return storetest.Fixture{A: f, B: f, Advance: time.Sleep, Tick: time.Second, Fast: true}
	}})
}

func TestFaulty_FailsBeforeTheCall(t *testing.T) {
	f := storetest.NewFaulty(memory.New())
	f.Set("Claim", storetest.Fault{Err: errOutage, Times: 2})
	for range 2 {
		if err := claim(t.Context(), f, "s"); !errors.Is(err, errOutage) {
			t.Fatalf("Claim = %v, want the planned error", err)
		}
		if _, err := f.Current(t.Context(), "h"); !errors.Is(err, store.ErrNotFound) {
			t.Fatalf("Current = %v, want ErrNotFound: a call that fails before does not reach the Store, and only Claim fails", err)
		}
	}
	if err := claim(t.Context(), f, "s"); err != nil {
		t.Fatalf("Claim = %v, want no error: the fault was for two calls", err)
	}
	if n, all := f.Calls("Claim"), f.Calls("*"); n != 3 || all != 5 {
		t.Fatalf("Calls = %d of Claim, %d in all, want 3 and 5", n, all)
	}
}

func TestFaulty_LosesTheReply(t *testing.T) {
	f := storetest.NewFaulty(memory.New())
	f.Set("Claim", storetest.Fault{Err: errOutage, After: true})
	if err := claim(t.Context(), f, "s"); !errors.Is(err, errOutage) {
		t.Fatalf("Claim = %v, want the planned error", err)
	}
	if a, err := f.Current(t.Context(), "h"); err != nil || a.ID != "s" {
		t.Fatalf("Current = %q, %v, want the socket whose claim had its reply lost", a.ID, err)
	}
}

func TestFaulty_StarIsAllOtherMethods(t *testing.T) {
	f := storetest.NewFaulty(memory.New())
	f.Set("*", storetest.Fault{Err: errOutage})
	f.Set("Claim", storetest.Fault{})
	if err := claim(t.Context(), f, "s"); err != nil {
		t.Fatalf("Claim = %v, want no error: a fault of its own counts, also an empty one", err)
	}
	if _, err := f.Current(t.Context(), "h"); !errors.Is(err, errOutage) {
		t.Fatalf("Current = %v, want the planned error", err)
	}
	f.Clear()
	if _, err := f.Current(t.Context(), "h"); err != nil {
		t.Fatalf("Current after Clear = %v, want no error", err)
	}
}

func TestFaulty_DelayIsExact(t *testing.T) { synctest.Test(t, testFaultyDelayIsExact) }
func testFaultyDelayIsExact(t *testing.T) {
	f := storetest.NewFaulty(memory.New())
	f.Set("Claim", storetest.Fault{Delay: 3 * time.Second})
	start := time.Now()
	if err := claim(t.Context(), f, "s"); err != nil || time.Since(start) != 3*time.Second {
		t.Fatalf("Claim = %v after %v, want no error after 3s", err, time.Since(start))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	start = time.Now()
	if err := claim(ctx, f, "t"); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
		t.Fatalf("Claim = %v after %v, want DeadlineExceeded after 1s: a delay honours ctx", err, time.Since(start))
	}
}

func TestFaulty_HangsUntilContextOrClear(t *testing.T) { synctest.Test(t, testFaultyHangs) }
func testFaultyHangs(t *testing.T) {
	f := storetest.NewFaulty(memory.New())
	f.Set("*", storetest.Fault{Hang: true})
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if err := claim(ctx, f, "s"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Claim = %v, want DeadlineExceeded: a call that hangs honours ctx", err)
	}

	var wg sync.WaitGroup
	var claimed, closed error = errOutage, errOutage
	wg.Go(func() { claimed = claim(t.Context(), f, "s") })
	synctest.Wait()
	f.Clear()
	wg.Wait()
	if claimed != nil {
		t.Fatalf("Claim = %v, want no error: after Clear a call that hangs goes on", claimed)
	}

	f.Set("Close", storetest.Fault{Hang: true})
	wg.Go(func() { closed = f.Close() })
	synctest.Wait()
	f.Set("Close", storetest.Fault{Err: errOutage})
	wg.Wait()
	if closed != nil {
		t.Fatalf("Close = %v, want no error: a new fault does not change calls under way", closed)
	}
	if err := f.Close(); !errors.Is(err, errOutage) {
		t.Fatalf("Close = %v, want the planned error", err)
	}
}

func TestFaulty_UnknownMethodIsLoud(t *testing.T) {
	f := storetest.NewFaulty(memory.New())
	f.Set("Clain", storetest.Fault{Err: errOutage})
	if err := claim(t.Context(), f, "s"); err == nil || !strings.Contains(err.Error(), `"Clain"`) {
		t.Fatalf("Claim = %v, want an error that names the method that does not exist", err)
	}
}

func TestFaulty_ManyAtOnce(t *testing.T) {
	f := storetest.NewFaulty(memory.New())
	var wg sync.WaitGroup
	const goroutines, calls = 8, 100
	for range goroutines {
		wg.Go(func() {
			for range calls {
				f.Set("Current", storetest.Fault{Err: errOutage, Times: 1})
				_, _ = f.Current(t.Context(), "h")
				f.Clear()
			}
		})
	}
	wg.Wait()
	if n := f.Calls("Current"); n != goroutines*calls {
		t.Fatalf("Calls = %d, want %d", n, goroutines*calls)
	}
}
