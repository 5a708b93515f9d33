//go:build linux

package clustertest

import "testing"

// Without the ticket's hint dial-backs pass through any node, also one that is
// about to end. No call fails for that, neither on a stream that was kept for
// the next request.
func TestRollingRestart_WithoutHint(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	rollingRestart(t, w, startHAProxy(t, w.net, plain), nil)
}
