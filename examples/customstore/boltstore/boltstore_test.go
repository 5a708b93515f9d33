package boltstore_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"github.com/dialback/dialback/examples/customstore/boltstore"
	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/storetest"
)

// openDB opens the file, which the test's end closes.
func openDB(tb testing.TB, file string) *bbolt.DB {
	tb.Helper()
	db, err := bbolt.Open(file, 0o600, &bbolt.Options{Timeout: time.Second, NoSync: true})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	})
	return db
}

func newStore(tb testing.TB, db *bbolt.DB) *boltstore.Store {
	tb.Helper()
	s, err := boltstore.New(db)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// The contract, as two nodes of one process see it. There is no network and no
// other process, so that each case runs in a bubble where a day takes no time.
func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Config{Bubble: true, Open: func(t *testing.T) storetest.Fixture {
		db := openDB(t, filepath.Join(t.TempDir(), "relay.db"))
		return storetest.Fixture{
			A: newStore(t, db), B: newStore(t, db),
			Advance: time.Sleep, Tick: time.Second, Fast: true,
		}
	}})
}

func BenchmarkStore(b *testing.B) {
	storetest.RunBenchmarks(b, func(b *testing.B) store.Store {
		return newStore(b, openDB(b, filepath.Join(b.TempDir(), "relay.db")))
	})
}

func attachment(hostID, id string) store.Attachment {
	return store.Attachment{ID: id, HostID: hostID, NodeID: "n", Incarnation: "i", Role: store.RoleHost}
}

// The file is all that is remembered: another Store on it goes on with it.
func TestStore_OutlivesItsProcess(t *testing.T) {
	file := filepath.Join(t.TempDir(), "relay.db")
	db, err := bbolt.Open(file, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	first := newStore(t, db)
	stays, err := first.Claim(t.Context(), attachment("stays", "a"), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	leaves, err := first.Claim(t.Context(), attachment("leaves", "b"), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Detach(t.Context(), leaves.Current.Ref()); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	next := newStore(t, openDB(t, file))
	if got, err := next.Current(t.Context(), "stays"); err != nil || got.Ref() != stays.Current.Ref() {
		t.Errorf("Current after a restart = %+v, %v, want %+v", got.Ref(), err, stays.Current.Ref())
	}
	current, err := next.Ping(t.Context(), []store.Attachment{stays.Current, leaves.Current}, time.Hour)
	if err != nil || !current[0] || current[1] {
		t.Errorf("Ping after a restart = %v, %v, want true for the one that stood, false for the one that was retired", current, err)
	}
}

// What may be forgotten leaves the file, by nothing but the writes of others.
func TestStore_Forgets(t *testing.T) { synctest.Test(t, testStoreForgets) }
func testStoreForgets(t *testing.T) {
	const hosts = 100
	db := openDB(t, filepath.Join(t.TempDir(), "relay.db"))
	s := newStore(t, db)
	for i := range hosts {
		host := fmt.Sprint("host-", i)
		if _, err := s.Claim(t.Context(), attachment(host, "a"), time.Minute); err != nil {
			t.Fatal(err)
		}
		client := attachment(host, "client")
		client.Role = store.RoleClient
		if err := s.PutSockets(t.Context(), []store.Attachment{client}, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Minute + store.TombstoneTTL)
	for range hosts {
		if _, err := s.Claim(t.Context(), attachment("busy", "a"), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	err := db.View(func(tx *bbolt.Tx) error {
		for bucket, want := range map[string]int{"hosts": 1, "sockets": 0} {
			if got := tx.Bucket([]byte(bucket)).Stats().KeyN; got != want {
				t.Errorf("%d entries in bucket %s a day later, want %d", got, bucket, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// endsWhenWaitedFor is a context that ends as soon as somebody waits for it.
type endsWhenWaitedFor struct {
	context.Context
	cancel context.CancelFunc
}

func (c endsWhenWaitedFor) Done() <-chan struct{} {
	c.cancel()
	return c.Context.Done()
}

// A call does not wait for the disk, or for other writers, longer than its
// context lasts.
func TestStore_ReturnsWhenTheContextEnds(t *testing.T) {
	db := openDB(t, filepath.Join(t.TempDir(), "relay.db"))
	s := newStore(t, db)
	other, err := db.Begin(true) // keeps all writers waiting
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback()
	ctx, cancel := context.WithCancel(t.Context())
	_, err = s.Claim(endsWhenWaitedFor{ctx, cancel}, attachment("h", "a"), time.Hour)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Claim whose context ended = %v, want its error", err)
	}
}
