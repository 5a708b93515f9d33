package redis_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dialback/dialback/internal/redistest"
	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/redis"
)

// Nothing stays for ever: whatever a relay leaves behind when it dies, each key
// has a deadline.
func TestStore_EveryKeyExpires(t *testing.T) {
	m := newMini(t)
	s := m.open(t)
	for name, err := range methods(t.Context(), s, attachment("h", "s")) {
		if outage(err) {
			t.Errorf("%s = %v, want no outage", name, err)
		}
	}
	client := attachment("h", "client")
	client.Role = store.RoleClient
	if err := s.PutSockets(t.Context(), []store.Attachment{client}, ttl); err != nil {
		t.Fatal(err)
	}
	if _, err := s.KeepNode(t.Context(), store.Node{ID: "n", Incarnation: "i"}, ttl); err != nil {
		t.Fatal(err)
	}
	gone := claim(t, s, attachment("gone", "s")).Current
	if err := s.Detach(t.Context(), gone.Ref()); err != nil {
		t.Fatal(err)
	}
	keys := m.Keys()
	if len(keys) != 8 { // 2 of h, 1 of gone, 2 of sockets, 2 of the node, the list of nodes
		t.Errorf("%d keys: %q, want 8", len(keys), keys)
	}
	for _, key := range keys {
		if m.TTL(key) <= 0 {
			t.Errorf("key %q has no deadline", key)
		}
	}
	m.advance(ttl + store.TombstoneTTL)
	if keys := m.Keys(); len(keys) != 0 {
		t.Errorf("keys %q are left a day after the last ttl, want none", keys)
	}
}

// A server whose clock is behind that of the master which it replaced, or was set
// back, finds keys that end in more than a day: replicas get deadlines, not ttls.
// LastSeen goes on telling of the host, and of those that it was asked for with.
func TestStore_LastSeenAfterTheClockWentBack(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	s := redis.New(client, &redis.Options{Timeout: patient})
	claim(t, s, attachment("other", "o"))
	gone := claim(t, s, attachment("h", "s")).Current
	if err := s.Detach(t.Context(), gone.Ref()); err != nil {
		t.Fatal(err)
	}
	keys, _ := s.KeysOf("h", "n")
	if err := client.PExpire(t.Context(), keys[1], store.TombstoneTTL+10*time.Second).Err(); err != nil {
		t.Fatal(err)
	}
	seen, err := s.LastSeen(t.Context(), []string{"other", "h"})
	if err != nil || !seen["other"].Attached || seen["h"].Reason != store.ReasonGone || seen["h"].LeftFor != 0 {
		t.Errorf("LastSeen = %+v, %v, want both hosts, and that h has left just now", seen, err)
	}
}

// A row whose ttl is not refreshed ends, one that is refreshed stays
// for longer than anything is remembered, and without a moment between.
func TestStore_PingedForMoreThanADay(t *testing.T) {
	m := newMini(t)
	s := m.open(t)
	replaced := claim(t, s, attachment("pinged", "replaced")).Current
	pinged := claim(t, s, attachment("pinged", "s")).Current
	silent := claim(t, s, attachment("silent", "s")).Current
	const step = ttl - time.Second
	for elapsed := step; elapsed < store.TombstoneTTL+2*ttl; elapsed += step {
		m.advance(step)
		if _, err := s.Current(t.Context(), "pinged"); err != nil {
			t.Fatalf("Current after %v = %v, want the socket: it is pinged within each ttl", elapsed, err)
		}
		if !ping(t, s, pinged)[0] {
			t.Fatalf("Ping after %v = retired, want current", elapsed)
		}
		a, err := s.Current(t.Context(), "silent")
		if expired := elapsed >= ttl; errors.Is(err, store.ErrNotFound) != expired {
			t.Fatalf("Current of the silent host after %v = %q, %v, want expired %v", elapsed, a.ID, err, expired)
		}
	}
	if ping(t, s, replaced)[0] {
		t.Error("Ping of the replaced socket = current; it is fenced while its successor stands")
	}
	if !ping(t, s, silent)[0] {
		t.Error("Ping of the silent host = retired, want its row written again")
	}
}

// A socket whose row expired and was written again still names what it had
// replaced.
func TestStore_WrittenAgainKeepsItsPrevious(t *testing.T) {
	m := newMini(t)
	s := m.open(t)
	claim(t, s, attachment("h", "first"))
	second := claim(t, s, attachment("h", "second")).Current
	m.advance(ttl)
	if !ping(t, s, second)[0] {
		t.Fatal("Ping = retired, want its row written again")
	}
	if _, err := s.Claim(t.Context(), attachment("h", "first"), ttl); !errors.Is(err, store.ErrRetired) {
		t.Errorf("Claim of the socket that it replaced = %v, want ErrRetired", err)
	}
	if c := claim(t, s, attachment("h", "second")); c.Previous.ID != "first" {
		t.Errorf("Claim repeated names %q as previous, want %q", c.Previous.ID, "first")
	}
}

// A row that has expired is newer than a tombstone from before it.
func TestStore_LastSeenOfTheNewest(t *testing.T) {
	m := newMini(t)
	s := m.open(t)
	first := claim(t, s, attachment("h", "first")).Current
	if err := s.Detach(t.Context(), first.Ref()); err != nil {
		t.Fatal(err)
	}
	m.advance(time.Hour)
	second := claim(t, s, attachment("h", "second")).Current
	m.advance(ttl)
	seen, err := s.LastSeen(t.Context(), []string{"h"})
	want := store.Seen{LastPing: second.LastPing, Generation: second.Generation}
	if err != nil || seen["h"] != want {
		t.Errorf("LastSeen = %+v, %v, want %+v: the second socket is what was seen last", seen["h"], err, want)
	}
}

// Nodes that never return, each restart with an ID of its own, do not make the
// list of nodes long.
func TestStore_NodesThatNeverReturn(t *testing.T) {
	m := newMini(t)
	s := m.open(t)
	for i := range 100 {
		if _, err := s.KeepNode(t.Context(), store.Node{ID: fmt.Sprint("n", i), Incarnation: "i"}, time.Minute); err != nil {
			t.Fatal(err)
		}
		m.advance(10 * time.Minute)
	}
	ids, err := m.ZMembers("dialback:nodes")
	if err != nil || len(ids) > 7 {
		t.Errorf("%d nodes are listed, %v; want those of the last hour", len(ids), err)
	}
}

// Records of sockets that a dead relay left behind go with the writes of
// others, not only when the host falls silent.
func TestStore_ExpiredRecordsDoNotAddUp(t *testing.T) {
	m := newMini(t)
	s := m.open(t)
	put := func(id string) {
		t.Helper()
		r := attachment("h", id)
		r.Role = store.RoleClient
		if err := s.PutSockets(t.Context(), []store.Attachment{r}, ttl); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		put(fmt.Sprint("left-", i))
	}
	m.advance(ttl - time.Second)
	put("stays") // so that the keys stay
	m.advance(time.Second)
	for i := range 10 {
		put(fmt.Sprint("new-", i))
	}
	for i, key := range m.Keys() {
		members, err := m.HKeys(key)
		if err != nil {
			members, err = m.ZMembers(key)
		}
		if err != nil || len(members) != 11 {
			t.Errorf("key %d of %q has %d members, %v; want the 11 that have not expired", i, m.Keys(), len(members), err)
		}
	}
}
