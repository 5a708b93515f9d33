package agent_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/transport"
)

// A relay that opens streams without end makes the agent remember no more than
// MaxOpenings, and no stream is opened twice for that: spares that were dialed
// for before the agent has forgotten one open none, dials always may.
func TestOpenings_Full(t *testing.T) {
	o := agent.NewOpenings(3 * time.Minute)
	now := time.Now()
	old := o.Forgotten()
	if !o.BySpare("on a spare", old, now) || !o.ByDial("by a dial", now) {
		t.Fatal("a new stream is not opened")
	}
	for i := range agent.MaxOpenings {
		if !o.ByDial(fmt.Sprint(i), now) {
			t.Fatalf("dial %d is not opened", i)
		}
	}
	// The last two are not remembered.
	for _, tt := range []struct {
		id    string
		spare bool
		want  bool
	}{
		{"on a spare", false, false}, {"on a spare", true, false}, {"by a dial", false, true}, {"by a dial", true, false},
		{fmt.Sprint(agent.MaxOpenings - 1), true, false}, {"new", true, false}, {"new", false, true},
	} {
		got := false
		if tt.spare {
			got = o.BySpare(tt.id, old, now)
		} else {
			got = o.ByDial(tt.id, now)
		}
		if got != tt.want {
			t.Errorf("full: %q is opened on a spare (%v): %v, want %v", tt.id, tt.spare, got, tt.want)
		}
	}
	now = now.Add(4 * time.Minute)
	if o.BySpare("later", old, now) {
		t.Error("a spare from before what was forgotten opens a stream")
	}
	if !o.BySpare("later", o.Forgotten(), now) || o.ByDial("later", now) {
		t.Error("there is room again: a spare opens no stream, or its stream is opened twice")
	}
}

// Streams without an ID are not the same.
func TestOpenings_NoID(t *testing.T) {
	o := agent.NewOpenings(3 * time.Minute)
	for range 2 {
		if !o.BySpare("", 0, time.Now()) || !o.ByDial("", time.Now()) {
			t.Error("a stream without an ID counts as opened already")
		}
	}
}

// IDs of more than 128 bytes are refused: the agent has to remember them.
func TestOpenings_LongID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRelay(t)
		run(t, r.config())
		c := r.next(7)
		good, long := strings.Repeat("x", 128), strings.Repeat("y", 129)
		refusal := transport.Refuse{Status: 502, Reason: "the stream's ID has more than 128 bytes"}

		c.dial(transport.StreamDial{Ticket: "t1", Stream: good})
		r.stream()
		c.dial(transport.StreamDial{Ticket: "t2", Stream: long})
		c.want(transport.Refuse{Ticket: "t2", Status: refusal.Status, Reason: refusal.Reason})

		s := c.spare("t3")
		s.open(transport.StreamOpen{Stream: long}, "bytes")
		s.wantFrame(refusal)
		s.wantEnd(transport.CloseNormal, "")
	})
}
