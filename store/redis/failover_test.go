package redis_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dialback/dialback/internal/redistest"
	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/redis"
)

// A record that was written before sockets had a list of those that were retired
// is read as one with an empty list.
func TestStore_RecordWithoutRetiredSockets(t *testing.T) {
	m := newMini(t)
	s := m.open(t)
	claim(t, s, attachment("h", "first"))
	second := claim(t, s, attachment("h", "second")).Current
	keys, _ := s.KeysOf("h", "n")
	for i := range store.RetiredKept {
		m.HDel(keys[1], fmt.Sprint("r.", i+1))
	}
	if !ping(t, s, second)[0] {
		t.Error("Ping of the current socket = retired, want current")
	}
	late := func(id, why string) {
		t.Helper()
		if _, err := s.Claim(t.Context(), attachment("h", id), ttl); !errors.Is(err, store.ErrRetired) {
			t.Errorf("Claim of %s, which %s, = %v, want ErrRetired", id, why, err)
		}
	}
	late("first", "is the previous one")
	claim(t, s, attachment("h", "third"))
	claim(t, s, attachment("h", "fourth"))
	late("second", "was replaced since")
}

// The master dies and a Sentinel promotes its replica, which lacks the last
// write. Calls are outages until then, and nothing else; the next Ping of each
// host makes things right.
func TestStore_Failover(t *testing.T) {
	r := redistest.StartReplicated(t)
	client, err := redis.Open(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	s := redis.New(client, nil)
	replaced := claim(t, s, attachment("h", "replaced")).Current
	current := claim(t, s, attachment("h", "current")).Current
	gone := claim(t, s, attachment("gone", "s")).Current
	if err := s.Detach(t.Context(), gone.Ref()); err != nil {
		t.Fatal(err)
	}
	r.Sync(t)
	r.Replica.Freeze(t)
	last := claim(t, s, attachment("h", "last")).Current
	r.Master.Stop()
	r.Replica.Thaw(t)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	beat := time.NewTicker(20 * time.Millisecond)
	defer beat.Stop()
	outages := 0
	var got []bool
	for got == nil && ctx.Err() == nil {
		got, err = s.Ping(ctx, []store.Attachment{replaced, last, current, gone}, ttl)
		if err != nil && !outage(err) {
			t.Fatalf("Ping during the failover = %v, want an outage", err)
		}
		if err != nil {
			outages++
			<-beat.C
		}
	}
	if err != nil || outages == 0 {
		t.Fatalf("Ping after %d outages = %v, want some, then an answer", outages, err)
	}
	t.Logf("%d calls failed during the failover", outages)
	if got[0] || !got[1] || got[3] {
		t.Errorf("Ping = %v of replaced, last, current and gone; want last to be current, replaced and gone to be retired", got)
	}
	if ping(t, s, current)[0] {
		t.Error("Ping says that the socket is current whose successor was written again")
	}
	a, err := s.Current(t.Context(), "h")
	if err != nil || a.ID != "last" || a.Generation != last.Generation {
		t.Errorf("Current = %+v, %v, want %+v: the lost Claim is written again", a, err, last)
	}
	if _, err := s.Claim(t.Context(), attachment("h", "current"), ttl); !errors.Is(err, store.ErrRetired) {
		t.Errorf("Claim of the socket that it replaced = %v, want ErrRetired", err)
	}
}
