package redis_test

import (
	"fmt"
	"testing"

	"github.com/dialback/dialback/internal/redistest"
	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/redis"
)

// What does not fit in one round trip takes several, in order.
func TestStore_ManyAtOnce(t *testing.T) {
	const n = 1201
	s := redis.New(redistest.Start(t).Client(t), &redis.Options{Timeout: patient})
	hosts := claimMany(t, s, n)
	var ids []string
	var records []store.Attachment
	var refs []store.SocketRef
	for i, a := range hosts {
		ids = append(ids, a.HostID)
		r := attachment("busy", fmt.Sprintf("client-%04d", i))
		r.Role = store.RoleClient
		records, refs = append(records, r), append(refs, r.SocketRef())
		if i%100 == 7 {
			if err := s.Detach(t.Context(), a.Ref()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, current := range ping(t, s, hosts...) {
		if want := i%100 != 7; current != want {
			t.Fatalf("Ping of host %d = %v, want %v: one answer per argument, in their order", i, current, want)
		}
	}
	seen, err := s.LastSeen(t.Context(), ids)
	if err != nil || len(seen) != n {
		t.Fatalf("LastSeen = %d hosts, %v, want %d", len(seen), err, n)
	}
	for i, a := range hosts {
		if want := i%100 != 7; seen[a.HostID].Attached != want || seen[a.HostID].Generation != a.Generation {
			t.Fatalf("LastSeen of host %d = %+v, want attached %v", i, seen[a.HostID], want)
		}
	}

	if err := s.PutSockets(t.Context(), records, ttl); err != nil {
		t.Fatal(err)
	}
	list := func(limit, want int) {
		t.Helper()
		as, err := s.Sockets(t.Context(), "busy", "", limit)
		if err != nil || len(as) != want {
			t.Fatalf("Sockets = %d records, %v, want %d", len(as), err, want)
		}
		for i, a := range as {
			if a.ID != records[i].ID {
				t.Fatalf("record %d is %q, want %q: ordered by ID", i, a.ID, records[i].ID)
			}
		}
	}
	list(n+1, n)
	list(700, 700)
	if err := s.DropSockets(t.Context(), refs[600:]); err != nil {
		t.Fatal(err)
	}
	list(n+1, 600)
}
