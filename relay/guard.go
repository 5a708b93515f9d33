//go:build !dialback_mutation

package relay

// The guards that the simulation takes out one at a time, to see that it
// notices (ARCHITECTURE.md, the simulation). They are constants here: what they guard is compiled as
// if they were not written.
const (
	guardRetiredMark    = true // retired mark: Store.Retire before a socket is closed
	guardTicketFence    = true // generation at the ticket: compared when it is redeemed
	guardLateClose      = true // late-close isolation: only the current socket's end empties its hub
	guardReplayRule     = true // replay rule: a request that is not repeatable is not sent twice
	guardPoolGeneration = true // generation in the pool: a kept stream is taken only under its own generation
	guardPongConfirmed  = true // pong after confirmation: only what the Store names current is answered
)
