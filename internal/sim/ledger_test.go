package sim

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/store"
)

// claimed makes a socket of host h.
func claimed(t *testing.T, l *ledger, id string) store.Attachment {
	t.Helper()
	c, err := l.claim(context.Background(), store.Attachment{ID: id, HostID: "h", NodeID: "n", Incarnation: "i", Role: store.RoleHost, Meta: []byte(id)}, 5*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return c.Current
}

// What was written in the last seconds is lost, what was before is not, and a
// ping puts the newest right again: that is what stores do, and what the faults
// of the simulation must do.
func TestLedger_Lose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(newTrace())
		first := claimed(t, l, "first")
		time.Sleep(10 * time.Second)
		second := claimed(t, l, "second")
		time.Sleep(time.Second)
		l.lose(5*time.Second, false)
		if now, err := l.store().Current(context.Background(), "h"); err != nil || now.ID != "first" || now.Generation != first.Generation {
			t.Errorf("after the loss the Store names %q of generation %d, %v; want first of %d", now.ID, now.Generation, err, first.Generation)
		}
		if !l.changedWithin("h", 100*time.Second, 200*time.Second) {
			t.Error("a lost claim explains nothing, though the Store names an earlier socket")
		}
		if ok, err := l.ping(context.Background(), []store.Attachment{second}, time.Minute); err != nil || !ok[0] {
			t.Fatalf("Ping of the newest = %v, %v", ok, err)
		}
		time.Sleep(time.Minute)
		if l.changedWithin("h", 30*time.Second, 60*time.Second) {
			t.Error("a claim that was written again explains failures long after")
		}
		l.lose(0, true)
		if _, err := l.store().Current(context.Background(), "h"); err == nil {
			t.Error("after the loss of everything the Store names a socket")
		}
	})
}

// A socket is named until another one, or none, is.
func TestLedger_LastNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(newTrace())
		first := claimed(t, l, "first")
		if _, now := l.lastNamed(l.socket("first")); !now {
			t.Error("the socket that was claimed is not named")
		}
		time.Sleep(time.Second)
		claimed(t, l, "second")
		if at, now := l.lastNamed(l.socket("first")); now || at.t != time.Second {
			t.Errorf("the replaced socket was named last at %v (still: %v), want 1s", at.t, now)
		}
		if err := l.retire(first.Ref(), store.ReasonGone, func(m storeRetirer) error { return m.Detach(context.Background(), first.Ref()) }); err != nil {
			t.Fatal(err)
		}
		if l.tr.failed() {
			t.Errorf("a Store that is right breaks a rule: %v", l.tr.violations)
		}
	})
}

// Each rule of the ledger notices a Store that does not keep it: one that
// forgets its fences between two calls.
func TestLedger_Notices(t *testing.T) {
	tests := []struct {
		rule string
		do   func(t *testing.T, l *ledger)
	}{
		{"I7 compare-and-delete", func(t *testing.T, l *ledger) {
			first := claimed(t, l, "first")
			second := claimed(t, l, "second")
			l.retire(first.Ref(), store.ReasonGone, func(m storeRetirer) error { return m.Detach(context.Background(), second.Ref()) })
		}},
		{"I7 tombstone", func(t *testing.T, l *ledger) {
			first := claimed(t, l, "first")
			l.retire(first.Ref(), store.ReasonGone, func(storeRetirer) error { return nil })
			l.ping(context.Background(), []store.Attachment{first}, time.Minute)
		}},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			l := newLedger(newTrace())
			tt.do(t, l)
			if got := fmt.Sprint(l.tr.violations); !strings.Contains(got, tt.rule) {
				t.Errorf("noticed %s, want %s", got, tt.rule)
			}
		})
	}
}
