package redis_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/dialback/dialback/internal/redistest"
	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/redis"
	"github.com/dialback/dialback/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// prefixes counts the Stores of this run, each of which has keys of its own.
var prefixes atomic.Int64

func freshPrefix() string { return fmt.Sprintf("test%d:", prefixes.Add(1)) }

// patient is the timeout of Stores under test where no server hangs: a stall of
// the machine is no outage.
const patient = 30 * time.Second

func TestConformance_Miniredis(t *testing.T) {
	storetest.Run(t, storetest.Config{Open: func(t *testing.T) storetest.Fixture {
		m := miniredis.RunT(t)
		clock := time.Now()
		m.SetTime(clock)
		open := func() store.Store {
			c := goredis.NewClient(&goredis.Options{Addr: m.Addr(), MaxRetries: -1})
			t.Cleanup(func() { _ = c.Close() })
			return redis.New(c, &redis.Options{Timeout: patient})
		}
		return storetest.Fixture{
			A: open(),
			B: open(),
			Advance: func(d time.Duration) {
				clock = clock.Add(d)
				m.SetTime(clock) // what scripts see
				m.FastForward(d) // what ends keys
			},
			Tick: time.Second,
			Fast: true,
		}
	}})
}

func TestConformance_Server(t *testing.T) {
	s := redistest.Start(t)
	t.Logf("Redis %s", s.Version(t))
	storetest.Run(t, storetest.Config{Open: func(t *testing.T) storetest.Fixture {
		o := &redis.Options{Prefix: freshPrefix(), Timeout: patient}
		return storetest.Fixture{
			A:       redis.New(s.Client(t), o),
			B:       redis.New(s.Client(t), o),
			Advance: time.Sleep,
			Tick:    20 * time.Millisecond,
		}
	}})
}

func TestConformance_Cluster(t *testing.T) {
	c := redistest.StartCluster(t, 3)
	storetest.Run(t, storetest.Config{Open: func(t *testing.T) storetest.Fixture {
		o := &redis.Options{Prefix: freshPrefix(), Timeout: patient}
		return storetest.Fixture{
			A:       redis.New(c.Client(t), o),
			B:       redis.New(c.Client(t), o),
			Advance: time.Sleep,
			Tick:    50 * time.Millisecond,
		}
	}})
}

// Nothing stays for ever: whatever a relay leaves behind when it dies, each key
// has a deadline.
func TestStore_EveryKeyExpires(t *testing.T) {
	m := miniredis.RunT(t)
	c := goredis.NewClient(&goredis.Options{Addr: m.Addr()})
	defer func() { _ = c.Close() }()
	s := redis.New(c, &redis.Options{Timeout: patient})
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
	m.FastForward(ttl + store.TombstoneTTL)
	if keys := m.Keys(); len(keys) != 0 {
		t.Errorf("keys %q are left a day after the last ttl, want none", keys)
	}
}

// A row whose ttl is not refreshed ends, one that is refreshed stays, three
// times the ttl long (faults.md 36).
func TestStore_ThreeTimesTheTTL(t *testing.T) {
	m := miniredis.RunT(t)
	c := goredis.NewClient(&goredis.Options{Addr: m.Addr()})
	defer func() { _ = c.Close() }()
	s := redis.New(c, &redis.Options{Timeout: patient})
	silent := claim(t, s, attachment("silent", "s")).Current
	pinged := claim(t, s, attachment("pinged", "s")).Current
	for elapsed := time.Duration(0); elapsed < 3*ttl; elapsed += ttl / 2 {
		m.FastForward(ttl / 2)
		if !ping(t, s, pinged)[0] {
			t.Fatalf("Ping after %v = retired, want current", elapsed)
		}
	}
	if _, err := s.Current(t.Context(), "pinged"); err != nil {
		t.Errorf("Current of the host that is pinged = %v, want its socket", err)
	}
	if a, err := s.Current(t.Context(), "silent"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Current of the silent host = %q, %v, want ErrNotFound", a.ID, err)
	}
	if !ping(t, s, silent)[0] {
		t.Error("Ping of the silent host = retired, want its row written again")
	}
}

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

// Records of sockets that a dead relay left behind go with the writes of
// others, not only when the host falls silent.
func TestStore_ExpiredRecordsDoNotAddUp(t *testing.T) {
	m := miniredis.RunT(t)
	clock := time.Now()
	m.SetTime(clock)
	c := goredis.NewClient(&goredis.Options{Addr: m.Addr()})
	defer func() { _ = c.Close() }()
	s := redis.New(c, &redis.Options{Timeout: patient})
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
	clock = clock.Add(ttl - time.Second)
	m.SetTime(clock)
	m.FastForward(ttl - time.Second)
	put("stays") // so that the keys stay
	clock = clock.Add(time.Second)
	m.SetTime(clock)
	m.FastForward(time.Second)
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
