package memory_test

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/memory"
	"github.com/dialback/dialback/store/storetest"
)

func attachment(host, id string) store.Attachment {
	return store.Attachment{ID: id, HostID: host, NodeID: "n", Incarnation: "i", Role: store.RoleHost}
}

// Hosts that come, leave and never return cost nothing after a day, by nothing
// but the writes of others.
func TestStore_ForgetsAfterADay(t *testing.T) { synctest.Test(t, testStoreForgetsAfterADay) }
func testStoreForgetsAfterADay(t *testing.T) {
	const hosts = 10_000
	s := memory.New()
	for i := range hosts {
		host := fmt.Sprint("host-", i)
		c, err := s.Claim(t.Context(), attachment(host, "a"), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 { // the other half just expires
			if err := s.Detach(t.Context(), c.Current.Ref()); err != nil {
				t.Fatal(err)
			}
		}
		client := attachment(host, "client")
		client.Role = store.RoleClient
		if err := s.PutSockets(t.Context(), []store.Attachment{client}, time.Minute); err != nil {
			t.Fatal(err)
		}
		if _, err := s.KeepNode(t.Context(), store.Node{ID: "n", Incarnation: host}, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	want := memory.Stats{Hosts: hosts / 2, Tombstones: hosts / 2, Sockets: hosts, Nodes: 1}
	if got := s.Stats(); got != want {
		t.Errorf("Stats = %+v, want %+v", got, want)
	}

	time.Sleep(time.Minute)
	want = memory.Stats{Tombstones: hosts}
	if got := s.Stats(); got != want {
		t.Errorf("Stats after the ttl = %+v, want %+v", got, want)
	}

	time.Sleep(24 * time.Hour)
	const writes = hosts/8 + 1 // each looks at 8 hosts
	for range writes {
		if _, err := s.Claim(t.Context(), attachment("busy", "a"), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.KeepNode(t.Context(), store.Node{ID: "other", Incarnation: "i"}, time.Minute); err != nil {
		t.Fatal(err)
	}
	if h, l, n := s.Held(); h != 1 || l != 0 || n != 1 {
		t.Errorf("after %d writes a day later %d hosts, %d lists of sockets and %d nodes are held; want 1, 0, 1", writes, h, l, n)
	}
}

// A host that reconnects for ever costs as much as one that never does.
func TestStore_ReconnectsDoNotAddUp(t *testing.T) {
	s := memory.New()
	for i := range 1000 {
		if _, err := s.Claim(t.Context(), attachment("h", fmt.Sprint(i)), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := s.Stats(), (memory.Stats{Hosts: 1}); got != want {
		t.Errorf("Stats = %+v, want %+v", got, want)
	}
}

// A relay means to hold an idle host in 10 KiB, so its row must not count.
func TestStore_IdleHostIsSmall(t *testing.T) {
	const hosts, limit = 20_000, 400
	ids := make([]string, hosts)
	for i := range ids {
		ids[i] = fmt.Sprintf("host-%08d", i)
	}
	s := memory.New()
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for _, id := range ids {
		if _, err := s.Claim(t.Context(), attachment(id, id), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	perHost := (heap() - before) / hosts
	t.Logf("%d bytes per host", perHost)
	if perHost > limit {
		t.Errorf("an idle host costs %d bytes, want %d at most", perHost, limit)
	}
	runtime.KeepAlive(s)
	runtime.KeepAlive(ids)
}

func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Config{Bubble: true, Open: func(t *testing.T) storetest.Fixture {
		s := memory.New()
		return storetest.Fixture{A: s, B: s, Advance: time.Sleep, Tick: time.Second, Fast: true}
	}})
}

func BenchmarkStore(b *testing.B) {
	storetest.RunBenchmarks(b, func(*testing.B) store.Store { return memory.New() })
}

// A ttl too long to add to the clock is for ever, not in the past.
func TestStore_LongestTTL(t *testing.T) { synctest.Test(t, testStoreLongestTTL) }
func testStoreLongestTTL(t *testing.T) {
	s := memory.New()
	time.Sleep(time.Hour)
	if _, err := s.Claim(t.Context(), attachment("h", "a"), math.MaxInt64); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1000 * time.Hour)
	if got, want := s.Stats(), (memory.Stats{Hosts: 1}); got != want {
		t.Errorf("Stats = %+v, want %+v", got, want)
	}
}

// Stats of a Store that was closed are zero.
func TestStore_CloseForgets(t *testing.T) {
	s := memory.New()
	if _, err := s.Claim(t.Context(), attachment("h", "a"), time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := s.Stats(); got != (memory.Stats{}) {
		t.Errorf("Stats after Close = %+v, want zeros", got)
	}
}

// What a day has made void counts for nothing, swept already or not.
func TestStore_VoidBeforeItIsSwept(t *testing.T) { synctest.Test(t, testStoreVoidBeforeItIsSwept) }
func testStoreVoidBeforeItIsSwept(t *testing.T) {
	s := memory.New()
	claim := func(host, id string) error {
		_, err := s.Claim(t.Context(), attachment(host, id), time.Minute)
		return err
	}
	for _, id := range []string{"first", "second"} {
		if err := claim("h", id); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 { // the sweep begins with these
		if err := claim(fmt.Sprint("other-", i), "a"); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Minute + store.TombstoneTTL)
	if err := claim("h", "first"); err != nil {
		t.Errorf("Claim = %v, want no error: it was replaced more than a day ago, and nothing of that is remembered", err)
	}
}

// A row that has expired is newer than a tombstone from before it.
func TestStore_LastSeenOfTheNewest(t *testing.T) { synctest.Test(t, testStoreLastSeenOfTheNewest) }
func testStoreLastSeenOfTheNewest(t *testing.T) {
	s := memory.New()
	first, err := s.Claim(t.Context(), attachment("h", "first"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Detach(t.Context(), first.Current.Ref()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Hour)
	second, err := s.Claim(t.Context(), attachment("h", "second"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Minute)
	seen, err := s.LastSeen(t.Context(), []string{"h"})
	want := store.Seen{LastPing: second.Current.LastPing, Generation: second.Current.Generation}
	if err != nil || seen["h"] != want {
		t.Errorf("LastSeen = %+v, %v, want %+v: the second socket is what was seen last", seen["h"], err, want)
	}
}

// A wall clock that jumps back gives no generation twice, and expires nothing.
func TestStore_ClockJumpsBack(t *testing.T) { synctest.Test(t, testStoreClockJumpsBack) }
func testStoreClockJumpsBack(t *testing.T) {
	jump := time.Duration(0)
	s := memory.NewWithClock(func() time.Time { return time.Now().Add(jump) })
	first, err := s.Claim(t.Context(), attachment("h", "a"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	jump = -time.Hour
	second, err := s.Claim(t.Context(), attachment("h", "b"), time.Minute)
	if err != nil || second.Current.Generation != first.Current.Generation+1 {
		t.Errorf("Claim = generation %d, %v, want %d: generations only grow", second.Current.Generation, err, first.Current.Generation+1)
	}
	jump = time.Hour
	if now, err := s.Current(t.Context(), "h"); err != nil || now.ID != "b" {
		t.Errorf("Current = %s, %v, want b: deadlines are not the wall clock's", now.ID, err)
	}
}

// A generation is below 1<<53, whatever the clock says, and generations grow.
func TestStore_ClockBefore1970(t *testing.T) {
	s := memory.NewWithClock(func() time.Time { return time.Unix(-1, 0) })
	var last uint64
	for _, id := range []string{"first", "second"} {
		c, err := s.Claim(t.Context(), store.Attachment{ID: id, HostID: "h", Role: store.RoleHost}, time.Minute)
		if g := c.Current.Generation; err != nil || g <= last || g > store.MaxGeneration {
			t.Errorf("generation %d after %d, %v; want a higher one, below 1<<53", g, last, err)
		}
		last = c.Current.Generation
	}
}
