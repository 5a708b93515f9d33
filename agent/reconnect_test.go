package agent_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/transport"
)

// A token func that hangs, panics, exits or fails must never end the loop, and
// no attempt is made without its token.
func TestRun_TokenTrouble(t *testing.T) {
	for _, tt := range []struct {
		name  string
		token func(ctx context.Context, call int64) (string, error)
		calls int64 // until the tenth attempt has failed
		want  time.Duration
	}{
		{"fails ten times", func(context.Context, int64) (string, error) { return "", errors.New("no") }, 10, 500*time.Millisecond + (1+2+4+6*5)*time.Second},
		{"panics ten times", func(context.Context, int64) (string, error) { panic("no") }, 10, 500*time.Millisecond + (1+2+4+6*5)*time.Second},
		{"ends its goroutine ten times", func(context.Context, int64) (string, error) { runtime.Goexit(); return "", nil }, 10, 500*time.Millisecond + (1+2+4+6*5)*time.Second},
		{"hangs until its context ends", func(ctx context.Context, _ int64) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}, 10, 500*time.Millisecond + (1+2+4+6*5)*time.Second + 100*time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFakeRelay(t)
				cfg := r.config()
				var calls atomic.Int64
				cfg.Token = func(ctx context.Context) (string, error) {
					if n := calls.Add(1); n <= 10 {
						return tt.token(ctx, n)
					}
					return "good", nil
				}
				began := time.Now()
				run(t, cfg)
				c := r.bare()
				if d := c.at.Sub(began); d != tt.want {
					t.Errorf("connected after %v, want %v", d, tt.want)
				}
				if got := c.header.Get("Dialback-Authorization"); got != "Bearer good" {
					t.Errorf("Dialback-Authorization is %q", got)
				}
			})
		})
	}
}

// A call that ignores its context is abandoned, but no second one is made
// beside it, for hours.
func TestRun_TokenHangsForHours(t *testing.T) { synctest.Test(t, testRunTokenHangsForHours) }
func testRunTokenHangsForHours(t *testing.T) {
	r := newFakeRelay(t)
	cfg := r.config()
	var calls atomic.Int64
	release := make(chan struct{})
	cfg.Token = func(ctx context.Context) (string, error) {
		if calls.Add(1) == 1 {
			<-release
			return "of hours ago", nil
		}
		return "fresh", nil
	}
	a := run(t, cfg)
	time.Sleep(3 * time.Hour)
	if n := calls.Load(); n != 1 {
		t.Errorf("%d calls in flight, want 1 at most", n)
	}
	if n := a.Stats().Connects; n < 100 {
		t.Errorf("%d attempts in 3 hours: the loop is stuck", n)
	}
	close(release)
	if got := r.bare().header.Get("Dialback-Authorization"); got != "Bearer fresh" {
		t.Errorf("Dialback-Authorization is %q, want a fresh token", got)
	}
}

func TestRun_StopsWhileTokenHangs(t *testing.T) { synctest.Test(t, testRunStopsWhileTokenHangs) }
func testRunStopsWhileTokenHangs(t *testing.T) {
	r := newFakeRelay(t)
	cfg := r.config()
	release := make(chan struct{})
	cfg.Token = func(context.Context) (string, error) { <-release; return "", nil }
	a := run(t, cfg)
	synctest.Wait()
	began := time.Now()
	_ = a.stop()
	if d := time.Since(began); d != 0 {
		t.Errorf("Run took %v to stop", d)
	}
	close(release)
}

// Each answer to a handshake, and what comes of it.
func TestRun_HandshakeRefused(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		after  string
		want   time.Duration
	}{
		{"unauthorized", 401, "", 500 * time.Millisecond},
		{"forbidden", 403, "", 66 * time.Second},
		{"not found", 404, "", 500 * time.Millisecond},
		{"too many", 429, "3", 3500 * time.Millisecond},
		{"draining", 503, "5", 5500 * time.Millisecond},
		{"gateway", 502, "", 500 * time.Millisecond},
		{"not a relay", 200, "", 500 * time.Millisecond},
		{"redirect", 302, "", 500 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFakeRelay(t)
				var refused atomic.Bool
				r.refuseWith(func(w http.ResponseWriter, req *http.Request) bool {
					if refused.Swap(true) {
						return false
					}
					if tt.after != "" {
						w.Header().Set("Retry-After", tt.after)
					}
					w.Header().Set("Location", "http://elsewhere:80/")
					w.WriteHeader(tt.status)
					return true
				})
				began := time.Now()
				run(t, r.config())
				if d := r.bare().at.Sub(began); d != tt.want {
					t.Errorf("after a %d the agent came back after %v, want %v", tt.status, d, tt.want)
				}
			})
		})
	}
}

// Two agents with one host ID: the loser is told, backs off, and it is
// reported.
func TestRun_ReplacedAgainAndAgain(t *testing.T) { synctest.Test(t, testRunReplacedAgainAndAgain) }
func testRunReplacedAgainAndAgain(t *testing.T) {
	r := newFakeRelay(t)
	r.pongs = true
	var log eventLog
	cfg := r.config()
	cfg.Hooks = agent.Hooks{Replaced: log.hooks().Replaced}
	var text logBuffer
	cfg.Logger = slog.New(slog.NewTextHandler(&text, nil))
	run(t, cfg)
	last := time.Now()
	for i, want := range []time.Duration{0, time.Second, time.Second, 66 * time.Second, 66 * time.Second} {
		c := r.next(uint64(i + 1))
		if d := c.at.Sub(last); d != want {
			t.Errorf("connection %d came %v after the replacement, want %v", i+1, d, want)
		}
		c.Close(transport.CloseReplaced, "replaced")
		<-c.done
		last = time.Now()
	}
	c := r.next(9)
	time.Sleep(time.Minute)
	c.Close(transport.CloseReplaced, "replaced")
	last = time.Now()
	if d := r.next(10).at.Sub(last); d != time.Second {
		t.Errorf("after a connection that lasted a minute the agent came back after %v, want 1s", d)
	}
	log.want(t, "replaced 1m6s", "replaced 1m6s", "replaced 1m6s")
	if n := strings.Count(text.String(), "another agent with this host ID"); n != 3 {
		t.Errorf("%d log lines about another agent, want 3", n)
	}
}

func TestRun_TokenAndTicketAreNeverLogged(t *testing.T) {
	synctest.Test(t, testRunTokenAndTicketAreNeverLogged)
}
func testRunTokenAndTicketAreNeverLogged(t *testing.T) {
	r := newFakeRelay(t)
	var text logBuffer
	var log eventLog
	cfg := r.config()
	cfg.Hooks = log.hooks()
	cfg.Hooks.Retry = func(err error, _ time.Duration) { log.add("retry %v", err) }
	cfg.Hooks.DialFailed = func(_ agent.StreamInfo, err error) { log.add("failed %v", err) }
	cfg.Logger = slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg.Token = func(context.Context) (string, error) { return "S3CRET", nil }
	refuse := func(w http.ResponseWriter, req *http.Request) bool {
		http.Error(w, req.URL.String()+req.Header.Get("Dialback-Authorization"), 404)
		return true
	}
	r.refuseWith(refuse)
	run(t, cfg)
	time.Sleep(250 * time.Millisecond)
	r.refuseWith(nil)
	c := r.next(1)
	r.refuseWith(refuse)
	c.dial(transport.StreamDial{Ticket: "T1CKET-refused", Stream: "s-1"})
	synctest.Wait()
	r.refuseWith(func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) })
	c.dial(transport.StreamDial{Ticket: "T1CKET-broken", Stream: "s-2"})
	c.want(transport.Refuse{Ticket: "T1CKET-broken", Status: 502, Reason: "dial-back failed"})
	c.dial(transport.StreamDial{Ticket: "T1CKET-unknown", Stream: "s-3", Service: "unknown"})
	synctest.Wait()
	c.CloseNow()
	synctest.Wait()
	all := text.String() + strings.Join(log.events, "\n")
	for _, secret := range []string{"S3CRET", "T1CKET"} {
		for line := range strings.Lines(all) {
			if strings.Contains(line, secret) {
				t.Errorf("%s appears in: %s", secret, line)
			}
		}
	}
	if !strings.Contains(all, "404") || !strings.Contains(all, "dial-back failed") {
		t.Errorf("the test has not provoked what it should:\n%s", all)
	}
}

// A relay that sends the token back where its own words belong does not get it
// into the log or to a hook: neither by the reason of a close nor as its name.
func TestRun_TokenIsNotTakenForTheRelaysWords(t *testing.T) {
	synctest.Test(t, testRunTokenIsNotTakenForTheRelaysWords)
}
func testRunTokenIsNotTakenForTheRelaysWords(t *testing.T) {
	const token = "S3CRET-0123456789"
	r := newFakeRelay(t)
	var text logBuffer
	var log eventLog
	cfg := r.config()
	cfg.Hooks = agent.Hooks{
		Online:  func(o agent.Online) { log.add("online %s", o.Node) },
		Offline: func(err error) { log.add("offline %v", err) },
		Retry:   func(err error, _ time.Duration) { log.add("retry %v", err) },
	}
	cfg.Logger = slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg.Token = func(context.Context) (string, error) { return token, nil }
	run(t, cfg)
	r.bare().Close(transport.CloseForbidden, "unknown token "+token) // before a hello
	c := r.bare()
	c.send(transport.Hello{Node: "node of " + token, Generation: 1})
	synctest.Wait()
	c.Close(transport.CloseUnauthorized, "expired: "+token)
	synctest.Wait()
	all := text.String() + strings.Join(log.events, "\n")
	if strings.Contains(all, token) {
		t.Errorf("the token appears in:\n%s", all)
	}
	for _, want := range []string{"online ", "offline ", "4403", "4401"} {
		if !strings.Contains(all, want) {
			t.Errorf("the test has not provoked %q:\n%s", want, all)
		}
	}
}

// logBuffer is a bytes.Buffer for concurrent use.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestRun_OneAtATime(t *testing.T) { synctest.Test(t, testRunOneAtATime) }
func testRunOneAtATime(t *testing.T) {
	r := newFakeRelay(t)
	a := run(t, r.config())
	r.next(1)
	if err := a.Run(t.Context()); !errors.Is(err, agent.ErrRunning) {
		t.Errorf("a second Run: %v, want ErrRunning", err)
	}
	_ = a.stop()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	c := r.next(2)
	if c.query.Get("seq") != "2" {
		t.Errorf("seq of a later Run is %s, want 2: it only grows", c.query.Get("seq"))
	}
	c.dial(transport.StreamDial{Ticket: "t"})
	s := r.stream()
	s.write("x")
	s.wantMessage("x")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("a later Run: %v", err)
	}
}

// A connection that lasted counts as a success also if a drain ended it.
func TestRun_DrainedConnectionResetsTheBackoff(t *testing.T) {
	synctest.Test(t, testRunDrainedConnectionResetsTheBackoff)
}
func testRunDrainedConnectionResetsTheBackoff(t *testing.T) {
	r := newFakeRelay(t)
	r.pongs = true
	var failures atomic.Int64
	refuse := func(n int64) {
		failures.Store(n)
		r.refuseWith(func(w http.ResponseWriter, _ *http.Request) bool {
			if failures.Add(-1) < 0 {
				return false
			}
			w.WriteHeader(http.StatusBadGateway)
			return true
		})
	}
	refuse(5)
	run(t, r.config())
	c := r.next(1)
	time.Sleep(time.Minute)
	refuse(1)
	began := time.Now()
	c.send(transport.Drain{ReconnectAfterMs: 1000})
	if d := r.next(2).at.Sub(began); d != 1500*time.Millisecond {
		t.Errorf("the successor came %v after the drain, want 1s and the first delay of 500ms", d)
	}
}
