package relay_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/relaytest"
	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/memory"
)

// slowPut is a Store whose first PutSockets takes longer than a batch.
type slowPut struct {
	*memory.Store
	puts atomic.Int32
}

func (s *slowPut) PutSockets(ctx context.Context, as []store.Attachment, ttl time.Duration) error {
	if s.puts.Add(1) == 1 {
		time.Sleep(1500 * time.Millisecond)
	}
	return s.Store.PutSockets(ctx, as, ttl)
}

// A stream that ended while its record was being written left the record: the
// next flush dropped it first.
func TestRecorder_DropDoesNotOvertakePut(t *testing.T) {
	synctest.Test(t, testRecorderDropDoesNotOvertakePut)
}

func testRecorderDropDoesNotOvertakePut(t *testing.T) {
	st := &slowPut{Store: memory.New()}
	s := relaytest.NewServer(t, &relaytest.Options{Config: func(c *relay.Config) {
		c.Store, c.StoreTimeout = st, 5*time.Second
	}})
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	a, err := agent.New(agent.Config{RelayURL: s.URL, HostID: "h", Transport: s.Transport(), Services: map[string]agent.Handler{
		"": agent.Raw(func(_ context.Context, s *agent.Stream) { _, _ = s.Read(make([]byte, 1)) }),
	}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = a.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	time.Sleep(time.Second)
	c, err := s.Relay.Dial(ctx, "h", relay.Target{})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(1100 * time.Millisecond) // the put has begun
	c.Close()
	time.Sleep(10 * time.Second)
	if n := st.Stats().Sockets; n != 0 {
		t.Errorf("%d records of sockets stand, though no stream is open", n)
	}
}
