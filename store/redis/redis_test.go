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

// mini is a miniredis, in which time passes by advance alone.
type mini struct {
	*miniredis.Miniredis
	clock time.Time
}

func newMini(t *testing.T) *mini {
	t.Helper()
	m := &mini{miniredis.RunT(t), time.Now()}
	m.SetTime(m.clock)
	return m
}

// open returns a Store with a client of its own.
func (m *mini) open(t *testing.T) *redis.Store {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: m.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	return redis.New(c, &redis.Options{Timeout: patient})
}

func (m *mini) advance(d time.Duration) {
	m.clock = m.clock.Add(d)
	m.SetTime(m.clock) // what scripts see
	m.FastForward(d)   // what ends keys
}

func TestConformance_Miniredis(t *testing.T) {
	storetest.Run(t, storetest.Config{Open: func(t *testing.T) storetest.Fixture {
		m := newMini(t)
		return storetest.Fixture{
			A:       m.open(t),
			B:       m.open(t),
			Advance: m.advance,
			Tick:    time.Second,
			Fast:    true,
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
