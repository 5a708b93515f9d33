package agent_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/transport"
)

// eventLog is what hooks were told.
type eventLog struct {
	mu     sync.Mutex
	events []string
}

func (l *eventLog) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, fmt.Sprintf(format, args...))
}

func (l *eventLog) hooks() agent.Hooks {
	return agent.Hooks{
		Online:   func(o agent.Online) { l.add("online %d", o.Generation) },
		Offline:  func(error) { l.add("offline") },
		Retry:    func(_ error, d time.Duration) { l.add("retry %v", d) },
		Replaced: func(d time.Duration) { l.add("replaced %v", d) },
		Refused: func(s agent.StreamInfo, status int, reason string) {
			l.add("refused %s %d %s", s.ID[2:], status, reason)
		},
		DialFailed:   func(s agent.StreamInfo, err error) { l.add("failed %s", s.ID[2:]) },
		StreamOpened: func(s agent.StreamInfo) { l.add("opened %s", s.ID[2:]) },
		StreamClosed: func(s agent.StreamInfo) { l.add("closed %s", s.ID[2:]) },
	}
}

// want compares the log so far.
func (l *eventLog) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.events, want) {
		t.Errorf("hooks were told\n%q, want\n%q", l.events, want)
	}
}

// slowTCP is a raw service whose dial is refused once release is closed.
func slowTCP(release <-chan struct{}) agent.Handler {
	return agent.ForwardTCPWith("local:22", agent.TCPOptions{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-release:
			return nil, syscall.ECONNREFUSED
		}
	}})
}

func TestHooks_PanicAndHangAreContained(t *testing.T) {
	synctest.Test(t, testHooksPanicAndHangAreContained)
}
func testHooksPanicAndHangAreContained(t *testing.T) {
	r := newFakeRelay(t)
	cfg := r.config()
	release := make(chan struct{})
	var closed int
	cfg.Hooks = agent.Hooks{
		Online:       func(agent.Online) { panic("online") },
		Offline:      func(error) { panic("offline") },
		StreamOpened: func(agent.StreamInfo) { <-release },
		StreamClosed: func(agent.StreamInfo) { closed++ },
	}
	a := run(t, cfg)
	c := r.next(1)
	const streams = 300
	for i := range streams {
		c.dial(transport.StreamDial{Ticket: fmt.Sprint(i)})
		s := r.stream()
		s.write("x")
		s.wantMessage("x")
		s.Close(transport.CloseNormal, "")
		<-s.Done()
	}
	c.CloseNow()
	r.next(2)
	synctest.Wait()
	if n := a.Stats().HooksDropped; n == 0 {
		t.Error("no hook was dropped while one hung")
	}
	began := time.Now()
	if err := a.stop(); err != context.Canceled {
		t.Errorf("Run: %v", err)
	}
	if d := time.Since(began); d != 5*time.Second {
		t.Errorf("Run waited %v for the hook, want the StopTimeout of 5s", d)
	}
	close(release)
	synctest.Wait()
}

// StreamClosed is told of each stream of which StreamOpened was, and of no
// other, also if the data socket breaks before the relay has heard of it.
func TestHooks_OpenedAndClosedArePaired(t *testing.T) {
	for _, kind := range []string{transport.KindTCP, transport.KindSpare} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFakeRelay(t)
				r.pongs = true
				var log eventLog
				cfg := r.config()
				cfg.Hooks = agent.Hooks{StreamOpened: log.hooks().StreamOpened, StreamClosed: log.hooks().StreamClosed}
				reached := make(chan struct{})
				cfg.Services["slow"] = agent.ForwardTCPWith("local:22", agent.TCPOptions{DialContext: func(context.Context, string, string) (net.Conn, error) {
					<-reached
					conn, _ := net.Pipe()
					return conn, nil
				}})
				a := run(t, cfg)
				c := r.next(1)
				if kind == transport.KindTCP {
					r.refuseWith(func(w http.ResponseWriter, req *http.Request) bool {
						if strings.HasSuffix(req.URL.Path, "/v2/dial") {
							r.accept(w, req).CloseNow()
							return true
						}
						return false
					})
					close(reached)
					c.dial(transport.StreamDial{Ticket: "a", Service: "slow"})
				} else {
					s := c.spare("t")
					s.open(transport.StreamOpen{Stream: "s-a", Service: "slow"}, "bytes")
					synctest.Wait()
					s.CloseNow()
					synctest.Wait()
					close(reached)
				}
				log.want(t, "opened a", "closed a")
				if st := a.Stats(); st.StreamsOpened != 1 || st.Streams != 0 {
					t.Errorf("Stats: %+v", st)
				}
			})
		})
	}
}
