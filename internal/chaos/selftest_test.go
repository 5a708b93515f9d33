//go:build linux

package chaos

import (
	"testing"
	"time"

	"github.com/dialback/dialback/internal/proctest"
)

// The rule of the retired socket, which everything here is about, can fail.
func TestRoll_Newer(t *testing.T) {
	at := time.Now()
	second := func(n int) time.Time { return at.Add(time.Duration(n) * time.Second) }
	older, newer := identity{"h", 1, 1}, identity{"h", 1, 2}
	r := &roll{confirmed: []confirmation{{older, second(0)}, {newer, second(10)}}}
	back := &roll{confirmed: []confirmation{{older, second(0)}, {newer, second(10)}, {older, second(20)}}}
	for _, tt := range []struct {
		name   string
		r      *roll
		served identity
		begun  int
		want   bool
	}{
		{"the only one", r, older, 5, false},
		{"the older one, for a request from before the newer one", r, older, 9, false},
		{"the older one, for a request from after it", r, older, 11, true},
		{"the newer one", r, newer, 11, false},
		{"the newer one, which the client did not know yet", r, newer, 9, false},
		{"one that has not heard of it yet", r, identity{"h", 1, 3}, 11, false},
		{"the older one, current again", back, older, 21, false},
		{"the older one, current again since", back, older, 15, false},
		{"the newer one, after the older one is back", back, newer, 21, true},
	} {
		if _, is := tt.r.newer(tt.served, second(tt.begun)); is != tt.want {
			t.Errorf("%s: newer = %v, want %v", tt.name, is, tt.want)
		}
	}
}

func TestParseIdentity(t *testing.T) {
	want := identity{"v2-1", 3, 14}
	if got, err := parseIdentity(want.String()); got != want || err != nil {
		t.Errorf("parseIdentity(%q) = %v, %v", want, got, err)
	}
	for _, bad := range []string{"", "h", "h/1", "h/x/1"} {
		if got, err := parseIdentity(bad); err == nil {
			t.Errorf("parseIdentity(%q) = %v, want an error", bad, got)
		}
	}
}

// A failure is held against the fault that explains it, and nothing else is.
func TestLedger_Judge(t *testing.T) {
	at := time.Now()
	second := func(n int) time.Time { return at.Add(time.Duration(n) * time.Second) }
	cut := &kind{name: "cut", reasons: []string{"connection lost", "503 host_(gone|offline)"}, back: time.Second}
	for _, tt := range []struct {
		name         string
		host         string
		begun, ended int
		reason       string
		want         string // the rule; empty: it is explained
	}{
		{"during the fault", "h", 11, 12, "connection lost", ""},
		{"begun before it", "h", 5, 12, "503 host_gone", ""},
		{"another reason", "h", 11, 12, "504 no_dial_back", ruleReason},
		{"another host", "other", 11, 12, "connection lost", ruleReason},
		{"in the calm before", "h", 8, 9, "connection lost", ruleReason},
		{"in the calm after", "h", 21, 22, "connection lost", ruleReason},
		{"above the bound", "h", 11, 24, "503 host_offline", ruleLate},
	} {
		l := newLedger(&proctest.Stalls{})
		l.outcomes = []outcome{{kindGet, tt.host, second(tt.begun), second(tt.ended), tt.reason}}
		f := &fault{kind: cut, hosts: []string{"h"}, begun: second(10), ended: second(15), calm: second(20), failures: make(map[string]int)}
		l.judge([]*fault{f})
		got := ""
		for rule := range l.violations {
			got = rule
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q: %v", tt.name, got, tt.want, l.violations)
		}
		if explained := tt.want != ruleReason; explained != (f.failures[tt.reason] == 1) {
			t.Errorf("%s: the fault has %v", tt.name, f.failures)
		}
	}
}
