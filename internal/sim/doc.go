// Package sim is a seeded simulation of a whole relay: several relay.Servers on
// a memory store, agents, v2 hosts and clients, on a network and with processes
// and a store that fail as a schedule says. It runs in a synctest bubble, on
// fake time and without sockets; a minute of it costs milliseconds. Only tests
// import it.
//
// # What replays
//
// [Generate] derives a [Schedule] from a seed and from nothing else: the
// processes, the delays of the network, the faults with their times and
// targets, the requests and streams with theirs, where each attempt to connect
// is led, and the jitter of each process. The same seed is the same schedule,
// on every machine. What does not replay is the order in which the Go scheduler
// runs goroutines that are ready at the same moment of fake time, and what
// hangs on it: random tickets and socket ids. A failure therefore prints its
// trace, with the order that it had, and not only its seed; most failures come
// again with their seed at once, all within a few tries.
//
// # What fails
//
// The network delays each link, freezes it in one direction or both, cuts its
// connections, ends one direction of one, and refuses or swallows new ones. A
// process that is stopped neither reads nor writes, its calls of the Store hang,
// and all that flows once it goes on, the calls that have timed out meanwhile
// too. That differs from SIGSTOP: its timers fire while it is stopped, so that
// what a real process would do late it decides in time, and does late. A
// process that crashes is cut off at once, or vanishes without a word; it comes
// back as another process, nodes with the same or another id. The Store fails,
// hangs, is slow or loses replies, for one node or all; it loses what was
// written last, or everything; its clock jumps. A host may have a double, and so
// may a node's ID. Clients leave, or end their direction in the midst of a
// request; services may be slower than the relay waits.
//
// # What is observed
//
// The observers ask the product for nothing. They see every byte that a node
// reads or writes (wire.go), every call of the Store and what the Store then
// names (ledger.go), every request and stream at the client's end and at the
// service's (outcome.go), and the faults themselves (causes.go). Each file says
// its rules.
package sim
