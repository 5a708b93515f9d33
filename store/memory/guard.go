//go:build !dialback_mutation

package memory

// The guards that the simulation takes out one at a time, to see that it
// notices (ARCHITECTURE.md, the simulation). They are constants here: what they guard is compiled as
// if they were not written.
const (
	guardCompareAndDelete = true // compare-and-delete: Retire and Detach touch no successor
	guardTombstone        = true // tombstone: no Ping brings a retired socket back
	guardSeq              = true // seq: a late Claim of an agent's earlier socket changes nothing
	guardStart            = true // start: a process that was replaced does not take its ID back after a loss
	guardBeat             = true // beat: a renewal says that earlier ones were lost
)
