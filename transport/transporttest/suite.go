// Package transporttest is the conformance suite of transport.Conn.
//
// The contract is in the comments of transport.Conn; each case names the rule
// that it checks. An implementation is conforming if TestConn, or
// TestConnBubble where its waits are durably blocking, passes under -race.
package transporttest

import (
	"testing"
	"testing/synctest"

	"github.com/dialback/dialback/transport"
)

// MakePair connects a and b with options o on both ends. stop ends both and
// waits until nothing of them is left.
type MakePair func(t *testing.T, o transport.Options) (a, b transport.Conn, stop func())

// TestConn runs the cases that need no fake time. Each runs twice, the second
// time with the ends exchanged.
func TestConn(t *testing.T, makePair MakePair) {
	for _, c := range cases {
		if c.fakeTime {
			continue
		}
		t.Run(c.name, func(t *testing.T) { c.runPair(t, makePair, false) })
		t.Run(c.name+"/Exchanged", func(t *testing.T) { c.runPair(t, makePair, true) })
	}
}

// TestConnBubble runs all cases, each inside a bubble of testing/synctest, and
// twice like TestConn. In a bubble durations are exact, and a goroutine that
// is left behind fails the test.
func TestConnBubble(t *testing.T, makePair MakePair) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.runPair(t, makePair, false) })
		})
		t.Run(c.name+"/Exchanged", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.runPair(t, makePair, true) })
		})
	}
}

// testCase is one rule.
type testCase struct {
	name     string
	fakeTime bool // runs only in a bubble
	options  transport.Options
	run      func(t *testing.T, a, b transport.Conn)
}

func (c *testCase) runPair(t *testing.T, makePair MakePair, exchanged bool) {
	a, b, stop := makePair(t, c.options)
	defer stop()
	if exchanged {
		a, b = b, a
	}
	c.run(t, a, b)
}

// cases in the order of their files.
var cases = concat(messageCases, closeCases, livenessCases, awaitCases)

func concat(groups ...[]testCase) []testCase {
	var all []testCase
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}
