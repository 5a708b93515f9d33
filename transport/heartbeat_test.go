package transport_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/dialback/dialback/transport"
)

const forever = time.Duration(math.MaxInt64)

var opened = time.Date(2025, 11, 29, 12, 0, 0, 0, time.UTC)

// step is something that happens, or is asked, some time after opening.
type step struct {
	at   time.Duration
	do   string // "confirmed", "heard", "pinged", or "due" and "due while writing"
	want string // of due: "ping", "dead", or how long to wait
	why  string
}

func answer(ping, dead bool, wait time.Duration) string {
	switch {
	case ping && !dead && wait == 0:
		return "ping"
	case dead && !ping && wait == 0:
		return "dead"
	case ping || dead:
		return fmt.Sprintf("ping=%v dead=%v wait=%v", ping, dead, wait)
	case wait == forever:
		return "forever"
	}
	return wait.String()
}

func TestHeartbeat(t *testing.T) {
	const (
		interval = 30 * time.Second
		silence  = 75 * time.Second
		ns       = time.Nanosecond
		s        = time.Second
	)
	cases := []struct {
		name              string
		interval, silence time.Duration
		steps             []step
	}{
		{"pings at once and then each interval", interval, silence, []step{
			{0, "due", "ping", "the first ping goes out at once"},
			{0, "pinged", "", ""},
			{0, "due", "30s", "the next is due an interval later"},
			{30*s - ns, "due", "1ns", "not a nanosecond sooner"},
			{30 * s, "due", "ping", "an interval has passed"},
			{31 * s, "due", "ping", "it stays due until it is sent"},
			{31 * s, "pinged", "", ""},
			{31 * s, "due", "30s", "an interval counts from the ping that was sent"},
		}},
		{"a relay that never confirmed is not punished for its silence", interval, silence, []step{
			{0, "pinged", "", ""},
			{75 * s, "due", "ping", "75 s of silence, but no pong was ever seen"},
			{75 * s, "pinged", "", ""},
			{3600 * s, "due", "ping", "an hour of silence, but no pong was ever seen"},
			{3600 * s, "pinged", "", ""},
			{3600 * s, "due", "30s", "there is nothing to wait for but the next ping"},
		}},
		{"other text frames do not confirm", interval, silence, []step{
			{0, "heard", "", ""},
			{0, "pinged", "", ""},
			{80 * s, "due", "ping", "a dial is no proof that the relay knows the ping"},
		}},
		{"a relay that confirmed once is given up after its silence", interval, silence, []step{
			{0, "pinged", "", ""},
			{1 * s, "confirmed", "", ""},
			{60 * s, "pinged", "", ""},
			{60 * s, "due", "16s", "the end of the silence comes before the next ping"},
			{76*s - ns, "due", "1ns", "74.999999999 s of silence"},
			{76 * s, "due", "dead", "75 s of silence"},
			{200 * s, "due", "dead", "dead comes before a ping that is due"},
		}},
		{"any text frame ends the silence", interval, silence, []step{
			{1 * s, "confirmed", "", ""},
			{70 * s, "heard", "", ""},
			{70 * s, "pinged", "", ""},
			{76 * s, "due", "24s", "heard 6 s ago"},
			{130 * s, "pinged", "", ""},
			{145*s - ns, "due", "1ns", "74.999999999 s of silence"},
			{145 * s, "due", "dead", "75 s of silence"},
		}},
		{"a confirmation that comes late still counts", interval, silence, []step{
			{0, "pinged", "", ""},
			{500 * s, "confirmed", "", ""},
			{500 * s, "pinged", "", ""},
			{500 * s, "due", "30s", "heard just now"},
			{575 * s, "due", "dead", "75 s after the confirmation"},
		}},
		{"without an interval there are no pings", 0, silence, []step{
			{0, "due", "forever", "nothing will be due"},
			{0, "confirmed", "", ""},
			{0, "due", "1m15s", "the silence counts all the same"},
		}},
		{"without a silence it is never given up", interval, -1, []step{
			{0, "confirmed", "", ""},
			{0, "pinged", "", ""},
			{9000 * s, "due", "ping", "there is no limit"},
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h := transport.NewHeartbeat(c.interval, c.silence, opened)
			for _, step := range c.steps {
				now := opened.Add(step.at)
				switch step.do {
				case "confirmed":
					h.Confirmed(now)
				case "heard":
					h.Heard(now)
				case "pinged":
					h.Pinged(now)
				case "due":
					if got := answer(h.Due(now)); got != step.want {
						t.Fatalf("after %v Due = %s, want %s: %s", step.at, got, step.want, step.why)
					}
				default:
					t.Fatalf("no such step: %s", step.do)
				}
			}
		})
	}
}
