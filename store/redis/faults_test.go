package redis_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dialback/dialback/internal/redistest"
	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/redis"
)

const ttl = 5 * time.Minute

// methods calls each method of s that may change or read data, all about one
// host, and returns their errors by name.
func methods(ctx context.Context, s store.Store, a store.Attachment) map[string]error {
	client := a
	client.Role, client.ID = store.RoleClient, "client of "+a.ID
	node := store.Node{ID: a.NodeID, Incarnation: a.Incarnation}
	if a.Generation == 0 {
		a.Generation = 1
	}
	errs := make(map[string]error)
	_, errs["Claim"] = s.Claim(ctx, a, ttl)
	_, errs["Current"] = s.Current(ctx, a.HostID)
	_, errs["Ping"] = s.Ping(ctx, []store.Attachment{a}, ttl)
	_, errs["LastSeen"] = s.LastSeen(ctx, []string{a.HostID})
	errs["PutSockets"] = s.PutSockets(ctx, []store.Attachment{client}, ttl)
	_, errs["Sockets"] = s.Sockets(ctx, a.HostID, "", 10)
	errs["DropSockets"] = s.DropSockets(ctx, []store.SocketRef{client.SocketRef()})
	_, errs["KeepNode"] = s.KeepNode(ctx, node, ttl)
	_, errs["Nodes"] = s.Nodes(ctx)
	errs["DropNode"] = s.DropNode(ctx, node.ID, node.Incarnation)
	errs["Detach"] = s.Detach(ctx, store.Ref{HostID: a.HostID, ID: a.ID, Generation: 1})
	return errs
}

// outage says whether err is one: an error that means nothing.
func outage(err error) bool {
	for _, known := range []error{
		nil, store.ErrNotFound, store.ErrRetired, store.ErrClosed, store.ErrInvalid,
		context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, known) {
			return false
		}
	}
	return true
}

func claim(t *testing.T, s store.Store, a store.Attachment) store.Claimed {
	t.Helper()
	c, err := s.Claim(t.Context(), a, ttl)
	if err != nil {
		t.Fatalf("Claim(%s) = %v, want no error", a.ID, err)
	}
	return c
}

func ping(t *testing.T, s store.Store, as ...store.Attachment) []bool {
	t.Helper()
	current, err := s.Ping(t.Context(), as, ttl)
	if err != nil {
		t.Fatalf("Ping = %v, want no error", err)
	}
	return current
}

// A server that hangs holds nobody up: neither with a client that heeds
// contexts, nor with one that would wait for ever.
func TestStore_HangingServerEndsEveryCall(t *testing.T) {
	for _, heeds := range []bool{true, false} {
		t.Run(fmt.Sprintf("ContextTimeoutEnabled=%v", heeds), func(t *testing.T) {
			server := redistest.Start(t)
			c := goredis.NewClient(&goredis.Options{
				Network:               server.Network,
				Addr:                  server.Addr,
				ContextTimeoutEnabled: heeds,
				ReadTimeout:           -1, // none
				MaxRetries:            -1,
			})
			t.Cleanup(func() { _ = c.Close() })
			s := redis.New(c, &redis.Options{Timeout: 50 * time.Millisecond})
			a := claim(t, redis.New(c, &redis.Options{Timeout: patient}), attachment("h", "s")).Current

			server.Freeze(t)
			for name, err := range methods(t.Context(), s, a) {
				if !outage(err) {
					t.Errorf("%s of a server that hangs = %v, want an error that is no sentinel and no context's", name, err)
				}
			}
			server.Thaw(t)
			for name, err := range methods(t.Context(), redis.New(c, &redis.Options{Timeout: patient}), attachment("g", "s")) {
				if outage(err) {
					t.Errorf("%s = %v after the server went on, want none", name, err)
				}
			}
		})
	}
}

// A caller that gives up is not kept until the Timeout.
func TestStore_CallersContextEndsEveryCall(t *testing.T) {
	server := redistest.Start(t)
	s := redis.New(server.Client(t), &redis.Options{Timeout: time.Hour})
	a := claim(t, s, attachment("h", "s")).Current
	server.Freeze(t)
	defer server.Thaw(t)
	ctx, cancel := context.WithCancel(t.Context())
	stop := time.AfterFunc(20*time.Millisecond, cancel)
	defer stop.Stop()
	if _, err := s.Current(ctx, "h"); !errors.Is(err, context.Canceled) {
		t.Errorf("Current = %v, want an error that wraps the context's", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Ping(ctx, []store.Attachment{a}, ttl); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Ping = %v, want an error that wraps the context's", err)
	}
}

// The reply of a Claim is lost. If the repetition counted anew, the caller
// would be named as its own predecessor, and the true one would never be
// retired.
func TestStore_LostReplyOfClaim(t *testing.T) {
	server := redistest.Start(t)
	direct := redis.New(server.Client(t), nil)
	tests := []struct {
		name       string
		maxRetries int
		failed     bool
		why        string
	}{
		{"the caller repeats", -1, true, "the Store repeats nothing by itself"},
		{"the client repeats", 3, false, "go-redis retries unless it is told not to"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newLossyProxy(t, server)
			s := redis.New(p.client(t, tt.maxRetries), &redis.Options{Timeout: patient})
			first := claim(t, s, attachment(tt.name, "first")).Current

			p.loseReply(1)
			_, err := s.Claim(t.Context(), attachment(tt.name, "second"), ttl)
			if (err != nil) != tt.failed || !p.lost() {
				t.Fatalf("Claim = %v, reply lost %v; want it lost, and an error %v: %s", err, p.lost(), tt.failed, tt.why)
			}
			stored, err := direct.Current(t.Context(), tt.name)
			if err != nil || stored.ID != "second" {
				t.Fatalf("Current = %q, %v, want the socket whose reply was lost", stored.ID, err)
			}
			again := claim(t, s, attachment(tt.name, "second"))
			if again.Current.Generation != stored.Generation || again.Previous.ID != "first" ||
				again.Previous.Generation != first.Generation {
				t.Errorf("Claim repeated = %+v, want generation %d and the first as previous", again, stored.Generation)
			}
		})
	}
}

// A client that repeats KeepNode by itself must not hide that the lease was
// created: the node would not write its rows again.
func TestStore_LostReplyOfKeepNode(t *testing.T) {
	p := newLossyProxy(t, redistest.Start(t))
	s := redis.New(p.client(t, 3), &redis.Options{Timeout: patient})
	if _, err := s.Nodes(t.Context()); err != nil { // opens the connection
		t.Fatal(err)
	}
	n := store.Node{ID: "n", Incarnation: "1"}
	keep := func(want bool, why string) {
		t.Helper()
		if created, err := s.KeepNode(t.Context(), n, ttl); err != nil || created != want {
			t.Errorf("KeepNode = %v, %v, want %v: %s", created, err, want, why)
		}
	}
	// Two round trips in each of which EVAL follows EVALSHA; the last reply.
	p.loseReply(4)
	keep(true, "the lease was created by this call")
	if !p.lost() {
		t.Fatal("no reply was lost")
	}
	keep(false, "the lease stands")
}

func TestStore_ScriptFlush(t *testing.T) {
	server, cluster := redistest.Start(t), redistest.StartCluster(t, 3)
	for name, c := range map[string]goredis.UniversalClient{
		"server":  server.Client(t),
		"cluster": cluster.Client(t),
	} {
		t.Run(name, func(t *testing.T) {
			s := redis.New(c, &redis.Options{Timeout: patient})
			hosts := claimMany(t, s, 600) // more than one pipeline
			for range 3 {
				if err := c.ScriptFlush(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
				for i, current := range ping(t, s, hosts...) {
					if !current {
						t.Fatalf("Ping says that host %d is retired; a server that lost the scripts lost no rows", i)
					}
				}
				if err := c.ScriptFlush(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
				for name, err := range methods(t.Context(), s, attachment("h", "s")) {
					if outage(err) {
						t.Errorf("%s = %v after SCRIPT FLUSH, want none", name, err)
					}
				}
			}
		})
	}
}

func claimMany(t *testing.T, s store.Store, n int) []store.Attachment {
	t.Helper()
	as := make([]store.Attachment, n)
	for i := range as {
		as[i] = claim(t, s, attachment(fmt.Sprint("host-", i), "s")).Current
	}
	return as
}

// Everything is lost: the next round of Pings writes it again, the next
// KeepNode says so, and generations do not go back.
func TestStore_FlushAll(t *testing.T) {
	server := redistest.Start(t)
	c := server.Client(t)
	s := redis.New(c, &redis.Options{Timeout: patient})
	n := store.Node{ID: "n", Incarnation: "i"}
	if _, err := s.KeepNode(t.Context(), n, ttl); err != nil {
		t.Fatal(err)
	}
	replaced := claim(t, s, attachment("host-0", "replaced")).Current
	hosts := claimMany(t, s, 600)
	if err := c.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}

	if created, err := s.KeepNode(t.Context(), n, ttl); err != nil || !created {
		t.Errorf("KeepNode = %v, %v, want created: the node must write its rows again", created, err)
	}
	for i, current := range ping(t, s, hosts...) {
		got, err := s.Current(t.Context(), hosts[i].HostID)
		if !current || err != nil || got.Generation != hosts[i].Generation || got.NodeID != "n" {
			t.Fatalf("Ping = %v, Current = %+v, %v; want %+v again", current, got, err, hosts[i])
		}
	}
	if ping(t, s, replaced)[0] {
		t.Error("Ping says that a replaced socket is current; the newest generation wins also after a loss")
	}
	if g := claim(t, s, attachment("host-0", "next")).Current.Generation; g <= hosts[0].Generation {
		t.Errorf("generation %d after %d; generations never go back", g, hosts[0].Generation)
	}
}

// A replica was promoted while the old master still served. Each side gave out
// a generation; whichever side remains, the newest wins.
func TestStore_SplitBrain(t *testing.T) {
	left := redis.New(redistest.Start(t).Client(t), &redis.Options{Timeout: patient})
	right := redis.New(redistest.Start(t).Client(t), &redis.Options{Timeout: patient})
	before := claim(t, left, attachment("h", "before")).Current
	if !ping(t, right, before)[0] { // stands for the replication until then
		t.Fatal("Ping of a row that the replica has not = retired, want it written")
	}
	older := claim(t, left, attachment("h", "older")).Current
	newer := claim(t, right, attachment("h", "newer")).Current
	if older.Generation >= newer.Generation {
		t.Fatalf("generations %d, then %d; both servers have this machine's clock", older.Generation, newer.Generation)
	}

	for name, remains := range map[string]*redis.Store{"the old master": left, "the new master": right} {
		got := ping(t, remains, older, newer, before)
		if got[1] != true || got[2] != false {
			t.Errorf("%s remains: Ping = %v of older, newer and before; want newer alone to stay", name, got)
		}
		if got := ping(t, remains, older, newer, before); got[0] || !got[1] || got[2] {
			t.Errorf("%s remains: the second Ping = %v; want newer alone to be current", name, got)
		}
		if _, err := remains.Claim(t.Context(), attachment("h", "before"), ttl); name == "the new master" && !errors.Is(err, store.ErrRetired) {
			t.Errorf("%s remains: Claim of the replaced socket = %v, want ErrRetired", name, err)
		}
	}
}

// The hosts of one master of a Cluster are out; those of the others are not.
func TestStore_OneMasterDown(t *testing.T) {
	cluster := redistest.StartCluster(t, 3)
	c := cluster.Client(t)
	s := redis.New(c, &redis.Options{Timeout: 2 * time.Second})
	down := cluster.Masters[2]
	var here, there []store.Attachment
	for _, a := range claimMany(t, s, 60) {
		keys, _ := s.KeysOf(a.HostID, "n")
		master, err := c.MasterForKey(t.Context(), keys[0])
		if err != nil {
			t.Fatal(err)
		}
		if master.Options().Addr == down.Addr {
			there = append(there, a)
		} else {
			here = append(here, a)
		}
	}
	if len(here) == 0 || len(there) == 0 {
		t.Fatalf("%d and %d hosts; want some on either side", len(here), len(there))
	}
	down.Stop()
	for range 2 {
		for i, current := range ping(t, s, here...) {
			if !current {
				t.Errorf("Ping of %s = retired, want current: its master is up", here[i].HostID)
			}
		}
		if _, err := s.Ping(t.Context(), there, ttl); !outage(err) {
			t.Errorf("Ping of hosts whose master is down = %v, want an outage", err)
		}
		if _, err := s.Ping(t.Context(), append(there[:1:1], here...), ttl); !outage(err) {
			t.Errorf("Ping of one host whose master is down among others = %v, want an outage: the answers are not known of all", err)
		}
	}
}

// Other data under the Store's keys is an outage, not an answer.
func TestStore_ForeignData(t *testing.T) {
	server := redistest.Start(t)
	c := server.Client(t)
	s := redis.New(c, &redis.Options{Timeout: patient})
	host, node := s.KeysOf("h", "n")
	for _, key := range append(host, node...) {
		if err := c.RPush(t.Context(), key, "foreign").Err(); err != nil {
			t.Fatal(err)
		}
	}
	for name, err := range methods(t.Context(), s, attachment("h", "s")) {
		if !outage(err) && name != "Nodes" && name != "KeepNode" {
			t.Errorf("%s = %v, want an outage", name, err)
		}
	}
}
