package agent_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/internal/memnet"
	"github.com/dialback/dialback/transport"
)

// A DialContext that does nothing of what it should costs its stream, within
// DialTimeout, and nothing else.
func TestLocalDial_Misbehaves(t *testing.T) {
	for _, tt := range []struct {
		name string
		dial func() (net.Conn, error)
		why  string
		took time.Duration
	}{
		{"heeds no context", func() (net.Conn, error) { time.Sleep(6 * time.Second); return nil, net.ErrClosed }, "timed out", 5 * time.Second},
		{"returns nothing", func() (net.Conn, error) { return nil, nil }, "unreachable", 0},
		{"ends its goroutine", func() (net.Conn, error) { runtime.Goexit(); return nil, nil }, "unreachable", 0},
	} {
		dial := func(context.Context, string, string) (net.Conn, error) { return tt.dial() }
		t.Run("TCP, "+tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := serving(t, newFakeRelay(t), agent.ForwardTCPWith("local:80", agent.TCPOptions{DialContext: dial}))
				began := time.Now()
				c.dial(transport.StreamDial{Ticket: "t"})
				c.want(transport.Refuse{Ticket: "t", Status: 502, Reason: "service down: " + tt.why})
				if d := time.Since(began); d != tt.took {
					t.Errorf("refused after %v, want %v", d, tt.took)
				}
			})
		})
		t.Run("HTTP, "+tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := serving(t, newFakeRelay(t), agent.ForwardHTTPWith("http://local:80", agent.HTTPOptions{DialContext: dial}))
				s := bareStream(c, "t")
				began := time.Now()
				s.write(get)
				got, err := s.message()
				if !strings.HasPrefix(got, "HTTP/1.1 502 ") || !strings.Contains(got, "service down: "+tt.why) || err != nil {
					t.Errorf("the answer is %q, %v, want 502, %s", got, err, tt.why)
				}
				if d := time.Since(began); d != tt.took {
					t.Errorf("answered after %v, want %v", d, tt.took)
				}
				s.CloseNow()
			})
		})
	}
}

// Calls that hang do not add up without end, and what they bring in the end is
// closed. Then new ones are made.
func TestLocalDial_ManyHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 100
		var calls atomic.Int32
		free := make(chan struct{})
		late, service := memnet.Pipe()
		c := serving(t, newFakeRelay(t), agent.ForwardTCPWith("local:80", agent.TCPOptions{
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				if calls.Add(1) == 1 {
					<-free
					return late, nil
				}
				<-free
				return nil, net.ErrClosed
			},
		}))
		refused := func(ticket, why string) {
			t.Helper()
			c.dial(transport.StreamDial{Ticket: ticket})
			c.want(transport.Refuse{Ticket: ticket, Status: 502, Reason: "service down: " + why})
		}
		for i := range most {
			refused(fmt.Sprint("t", i), "timed out")
		}
		refused("more", "unreachable")
		if n := calls.Load(); n != most {
			t.Errorf("%d calls of a DialContext that hangs, want %d", n, most)
		}
		close(free)
		wantEOF(t, service)
		refused("after", "unreachable")
		if n := calls.Load(); n != most+1 {
			t.Errorf("%d calls, want one more once the others have returned", n)
		}
	})
}
