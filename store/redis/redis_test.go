package redis_test

import (
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
