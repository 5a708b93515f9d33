package agent_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/transport"
)

func TestRun_ServesAStream(t *testing.T) { synctest.Test(t, testRunServesAStream) }
func testRunServesAStream(t *testing.T) {
	r := newFakeRelay(t)
	cfg := r.config()
	cfg.Token = func(context.Context) (string, error) { return "secret", nil }
	a := run(t, cfg)

	c := r.next(7)
	if got := c.header.Get("Dialback-Authorization"); got != "Bearer secret" {
		t.Errorf("Dialback-Authorization is %q", got)
	}
	if q := c.query; q.Get("hostId") != "host-1" || q.Get("proto") != "3" || q.Get("seq") != "1" || len(q.Get("instance")) != 36 {
		t.Errorf("query of the control socket is %v", q)
	}
	c.dial(transport.StreamDial{Ticket: "t1"})
	s := r.stream()
	if q := s.query; q.Get("hostId") != "host-1" || q.Get("ticket") != "t1" || len(q) != 2 {
		t.Errorf("query of the data socket is %v", q)
	}
	s.write("hello")
	s.wantMessage("hello")
	s.eof()
	s.wantMessage("EOF")
	s.wantEnd(transport.CloseNormal, "")

	c.dial(transport.StreamDial{Ticket: "t2"})
	s = r.stream()
	if err := a.stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("Run returned %v, want the error of its context", err)
	}
	if ce := c.ended(); ce.Code != transport.CloseGoingAway || ce.Reason != "agent stopping" {
		t.Errorf("the end of Run closed the control socket with %v", ce)
	}
	s.wantEnd(transport.CloseGoingAway, "agent stopping")
	if st := a.Stats(); st != (agent.Stats{StreamsOpened: 2, Connects: 1}) {
		t.Errorf("Stats after Run: %+v", st)
	}
}
