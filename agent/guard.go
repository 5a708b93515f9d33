//go:build !dialback_mutation

package agent

// The guards that the simulation takes out one at a time, to see that it
// notices (ARCHITECTURE.md, the simulation). They are constants here: what they
// guard is compiled as if they were not written.
const (
	guardOpenedOnce = true // opened once: a stream ID is remembered, on a spare too
)
