package transport_test

import (
	"testing"
	"time"

	"github.com/dialback/dialback/transport"
)

func TestKeepalive(t *testing.T) {
	const (
		ns = time.Nanosecond
		s  = time.Second
	)
	cases := []struct {
		name     string
		interval time.Duration
		steps    []step
	}{
		{"pings each interval", 15 * s, []step{
			{0, "due", "15s", "a fresh connection needs no ping"},
			{15*s - ns, "due", "1ns", "not a nanosecond sooner"},
			{15 * s, "due", "ping", "an interval has passed"},
			{15 * s, "pinged", "", ""},
			{16 * s, "heard", "", ""},
			{16 * s, "due", "14s", "the next ping, whatever was heard"},
			{30 * s, "due", "ping", "an interval has passed"},
		}},
		{"a pong that is missing for three intervals", 15 * s, []step{
			{15 * s, "pinged", "", ""},
			{30 * s, "pinged", "", ""},
			{45 * s, "pinged", "", ""},
			{45 * s, "due", "15s", "the next ping and the end come together"},
			{60*s - ns, "due", "1ns", "44.999999999 s without a pong"},
			{60 * s, "due", "dead", "45 s after the first ping without an answer"},
			{61 * s, "due", "dead", "it stays dead"},
		}},
		{"hearing anything resets it", 15 * s, []step{
			{15 * s, "pinged", "", ""},
			{59 * s, "heard", "", ""},
			{60 * s, "due", "ping", "nothing is unanswered"},
			{60 * s, "pinged", "", ""},
			{90 * s, "pinged", "", ""},
			{105*s - ns, "due", "1ns", "44.999999999 s since the ping at 60 s"},
			{105 * s, "due", "dead", "45 s since the ping at 60 s"},
		}},
		{"a slow reader is not dead", 15 * s, []step{
			{15 * s, "pinged", "", ""},
			{60 * s, "due while writing", "ping", "bytes wait, and the pong behind them"},
			{60 * s, "pinged", "", ""},
			{600 * s, "due while writing", "ping", "bytes still wait"},
			{600 * s, "pinged", "", ""},
			{630 * s, "pinged", "", ""},
			{645*s - ns, "due", "1ns", "44.999999999 s since bytes waited"},
			{645 * s, "due", "dead", "no pong for 45 s, and nothing waited"},
		}},
		{"bytes that wait do not make a pong missing", 15 * s, []step{
			{14 * s, "due while writing", "1s", "no ping was sent"},
			{80 * s, "due", "ping", "no ping was sent, so no pong is missing"},
		}},
		{"without an interval nothing is ever due", 0, []step{
			{9000 * s, "due", "forever", "there are no pings"},
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			k := transport.NewKeepalive(c.interval, opened)
			for _, step := range c.steps {
				now := opened.Add(step.at)
				switch step.do {
				case "heard":
					k.Heard(now)
				case "pinged":
					k.Pinged(now)
				case "due", "due while writing":
					if got := answer(k.Due(now, step.do != "due")); got != step.want {
						t.Fatalf("after %v Due = %s, want %s: %s", step.at, got, step.want, step.why)
					}
				default:
					t.Fatalf("no such step: %s", step.do)
				}
			}
		})
	}
}
