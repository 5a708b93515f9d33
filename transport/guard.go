//go:build !dialback_mutation

package transport

// The guards that the simulation takes out one at a time, to see that it
// notices (ARCHITECTURE.md, the simulation). They are constants here: what they guard is compiled as
// if they were not written.
const (
	guardPongSeen = true // pongSeen: silence counts only where the relay has answered before
)
