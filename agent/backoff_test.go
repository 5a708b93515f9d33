package agent_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/transport"
)

func TestBackoff_Delays(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	broken := errors.New("broken")
	closed := func(code transport.CloseCode) error { return &transport.CloseError{Code: code, Remote: true} }
	answered := func(status int, after time.Duration) error {
		return &transport.HandshakeError{Status: status, RetryAfter: after}
	}
	type step struct {
		err    error
		lasted time.Duration
		want   time.Duration
		fight  bool
	}
	for _, tt := range []struct {
		name  string
		why   string
		rand  float64
		steps []step
	}{
		{"grows to the limit", "exponential, 5s at most", 1, []step{
			{broken, 0, 500 * ms, false}, {broken, 0, s, false}, {broken, 0, 2 * s, false}, {broken, 0, 4 * s, false},
			{broken, 0, 5 * s, false}, {broken, 0, 5 * s, false},
		}},
		{"full jitter", "a fleet must not come back together", 0.25, []step{
			{broken, 0, 125 * ms, false}, {broken, 0, 250 * ms, false}, {broken, 0, 500 * ms, false}, {broken, 0, s, false}, {broken, 0, 1250 * ms, false},
		}},
		{"reset after a connection that lasted", "only that is a success", 1, []step{
			{broken, 0, 500 * ms, false}, {broken, 0, s, false},
			{broken, 10*s - 1, 2 * s, false},
			{broken, 10 * s, 500 * ms, false}, {broken, 0, s, false},
		}},
		{"stale: at once, but only once", "a second failure in a row always backs off", 1, []step{
			{closed(4408), 0, 0, false}, {closed(4408), 0, s, false}, {closed(4408), 0, 2 * s, false}, {closed(4408), time.Hour, 0, false},
		}},
		{"restart and unauthorized: the usual", "a fresh token is minted anyway", 1, []step{
			{closed(1012), 0, 500 * ms, false}, {closed(4401), 0, s, false}, {answered(401, 0), 0, 2 * s, false},
			{answered(404, 0), 0, 4 * s, false}, {answered(429, 0), 0, 5 * s, false},
		}},
		{"denied: slowly", "coming back soon cannot help", 0, []step{
			{closed(4403), 0, time.Minute, false}, {answered(403, 0), 0, time.Minute, false},
			{closed(4400), 0, time.Minute, false}, {answered(400, 0), 0, time.Minute, false},
			{broken, time.Hour, 0, false},
		}},
		{"Retry-After", "the relay knows better, up to a minute", 1, []step{
			{answered(503, 7*s), 0, 7*s + 500*ms, false}, {answered(503, time.Hour), 0, 61 * s, false},
		}},
		{"this side's own close codes say nothing", "only what the relay sends is advice", 1, []step{
			{&transport.CloseError{Code: transport.CloseForbidden}, 0, 500 * ms, false},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBackoff(t, tt.rand)
			now := time.Now()
			for i, s := range tt.steps {
				d, fight := b.Next(now, s.err, s.lasted)
				if d != s.want || fight != s.fight {
					t.Errorf("failure %d (%v): delay %v, fight %v; want %v, %v: %s", i+1, s.err, d, fight, s.want, s.fight, tt.why)
				}
				now = now.Add(d)
			}
		})
	}
}

func TestBackoff_Fight(t *testing.T) {
	replaced := &transport.CloseError{Code: transport.CloseReplaced, Remote: true}
	b := newBackoff(t, 1)
	now := time.Now()
	for i, step := range []struct {
		lasted time.Duration
		want   time.Duration
		fight  bool
		why    string
	}{
		{time.Hour, time.Second, false, "the newer claim may have been a late one"},
		{0, time.Second, false, "a second failure in a row backs off"},
		{0, 66 * time.Second, true, "3 within 60s"},
		{0, 66 * time.Second, true, "still fighting, though the last 60s saw one only"},
		{59 * time.Second, 66 * time.Second, true, "still fighting: no connection lasted for 60s"},
		{60 * time.Second, time.Second, false, "the connection lasted"},
		{30 * time.Second, time.Second, false, "2 within 60s"},
		{30 * time.Second, time.Second, false, "the first of 3 was more than 60s ago"},
	} {
		now = now.Add(step.lasted)
		d, fight := b.Next(now, replaced, step.lasted)
		if d != step.want || fight != step.fight {
			t.Errorf("replacement %d: delay %v, fight %v; want %v, %v: %s", i+1, d, fight, step.want, step.fight, step.why)
		}
		now = now.Add(d)
	}
}

// A Rand that panics or talks nonsense must not stop the reconnect loop.
func TestBackoff_BadRand(t *testing.T) {
	for name, rand := range map[string]func() float64{
		"panics":   func() float64 { panic("no") },
		"NaN":      math.NaN,
		"negative": func() float64 { return -1 },
		"huge":     func() float64 { return 1e30 },
	} {
		b, err := agent.NewBackoff(backoffConfig, rand)
		if err != nil {
			t.Fatal(err)
		}
		if d, _ := b.Next(time.Now(), errors.New("broken"), 0); d != 500*time.Millisecond {
			t.Errorf("%s: delay %v, want the whole 500ms", name, d)
		}
	}
}

// Delays that grow without end do not overflow.
func TestBackoff_GrowsWithoutEnd(t *testing.T) {
	cfg := backoffConfig
	cfg.MaxReconnectDelay = math.MaxInt64
	b, err := agent.NewBackoff(cfg, func() float64 { return 1 })
	if err != nil {
		t.Fatal(err)
	}
	last := time.Duration(0)
	for i := range 100 {
		d, _ := b.Next(time.Now(), errors.New("broken"), 0)
		if d < last {
			t.Fatalf("failure %d: delay %v after one of %v", i+1, d, last)
		}
		last = d
	}
}

var backoffConfig = agent.Config{RelayURL: "ws://r", HostID: "h", Services: map[string]agent.Handler{"": agent.ForwardTCP("h:1")}}

func newBackoff(t *testing.T, rand float64) *agent.Backoff {
	t.Helper()
	b, err := agent.NewBackoff(backoffConfig, func() float64 { return rand })
	if err != nil {
		t.Fatal(err)
	}
	return b
}
