// Package store is the contract between a relay and whatever remembers which
// sockets its hosts keep, and which relay nodes live.
//
// A [Store] holds attachments (one record per socket) and the leases of nodes.
// It carries no messages, no tickets and no payload, so a backend is only state
// with compare-and-set. Package memory is the backend for one process, package
// redis the one for several nodes, and package storetest the proof that a
// backend keeps what is promised here.
//
// # The contract
//
// Each sentence is proved by a case of package storetest.
//
//  1. Concurrency. All methods may be called at the same time, from any
//     goroutine and from every process that shares the data.
//  2. Context. A method whose ctx is already done returns its error and changes
//     nothing. When ctx ends during the call, the method returns soon, and the
//     outcome is unknown. In both cases errors.Is finds ctx.Err() in the error.
//     Where a client or a driver does not heed a ctx, the method returns all
//     the same and leaves it behind: a relay that has a second for a call has
//     no more. What is left behind must end by itself.
//  3. Completion. When a method returns, every node that shares the data sees
//     its effect.
//  4. Absence. What is missing, expired or retired is [ErrNotFound] from the
//     method that returns one record, and left out by those that return
//     several; never a zero value with a nil error.
//  5. Idempotence. Claim repeated for the socket that is current gives the same
//     answer again, previous attachment included. Retire, Detach, DropSockets
//     and DropNode of what is absent or replaced return nil and change nothing
//     that stands.
//  6. Fencing. Claim retires what stood and gives a generation above all before
//     of this host, also across expiry; under an older one Ping reports retired
//     and Retire and Detach touch nothing; a late Claim is [ErrRetired]. See
//     Fencing below.
//  7. Time. The Store's clock decides, at its deadline a record counts as
//     expired, and a ttl that is not positive is [ErrInvalid]. See Time below.
//  8. Ownership of data. Arguments are neither kept nor modified, results are
//     the caller's own: no byte of Meta and no slice is shared in either
//     direction.
//  9. Keys. Every ID is any non-empty string of up to 256 bytes, compared byte
//     by byte: ':', '/', '{', '}', spaces, NUL and bytes that are no UTF-8
//     come back as they were, and different IDs never collide. So two IDs that
//     are joined by a separator are no key, nor is one that is put into JSON
//     or a path as it is: escape them, or write their lengths. Case and
//     trailing spaces count, as they do not in every database's text column.
//  10. Errors. Only the errors of this package and those of the context mean
//     something. Any other error is an outage: the caller may try again with
//     backoff and must not assume either outcome.
//  11. Atomicity. What one method does to one host, or to one node, happens at
//     once or not at all. A method that takes several hosts makes no promise
//     across them.
//  12. Tombstones. Retire and Detach leave a tombstone for [TombstoneTTL], also
//     where there is no row any more. A tombstone has a generation, and hinders
//     those up to it: Ping writes an attachment again only if no row and no
//     tombstone of its own or of a newer generation stands. One that is older
//     does not hinder it. A Claim does not remove a tombstone, but gets a newer
//     generation than its.
//  13. Retired is for ever. No later Ping or Claim, no lost reply and no restart
//     makes a retired socket current again, for as long as the Store remembers
//     it: for a Ping by its generation, for a Claim, which has none, as one of
//     the last [RetiredKept] of its host.
//  14. Size. Expect 100,000 hosts in one Store: 3,500 Pings per second in batches
//     of up to 500, 1,000 Current per second, and after the loss of a node a
//     herd of Claims limited by the relays. A host has up to 2,000 records of
//     sockets; nodes are some tens. No method may take time that grows with the
//     number of all hosts.
//  15. Close. Close may be called twice; later calls of any method return
//     [ErrClosed]; a client that the Store was given stays open.
//  16. Proof. An implementation conforms if storetest.Run passes with the race
//     detector on.
//
// # Time
//
// Only the Store's clock decides: it judges when a record has expired, and it
// sets LastPing. Clocks of nodes are never compared, but for the StartedAt of two
// processes with one node ID. A ttl runs from the moment
// of the call; it has a precision of a millisecond or better and may be rounded
// up, never down. From its deadline on a record counts as expired.
//
// Times come back as the same instant to the millisecond, StartedAt to the
// microsecond, the zero Time as the zero Time. Their location is not kept.
//
// # Fencing
//
// At most one control socket of a host is current. Claim gives it a generation:
// the Store's clock in microseconds since 1970, or one more than the highest
// generation that the Store remembers of this host, whichever is higher. So
// generations of one host only grow, also across expiry, restarts and lost
// writes, and of two attachments the one with the higher generation is the
// newer one. A generation is below 1<<53, so that scripts which count in
// floating point hold it.
//
// Claim marks the attachment that it replaces as retired and keeps it beside
// the new one as its previous. One that had expired is retired as well, by the
// newer one, but it is no previous one. Retire and Detach name an attachment by socket
// ID and generation; they turn it into a tombstone, which holds generation,
// socket ID, Instance, Seq, last ping and reason for [TombstoneTTL].
//
// A Claim is late, fails with [ErrRetired] and changes nothing
//
//   - if its socket is known as retired: it is one of the [RetiredKept] of this
//     host that were retired last, by a Claim, by the Ping of a newer one, by
//     Retire or by Detach;
//   - if the tombstone's, the current attachment, the previous one of that or,
//     while none is current, that of the tombstone's is of the same Instance (not
//     empty) with a higher Seq.
//
// So a caller repeats a Claim for some seconds, and gives it up once it knows of a
// newer socket of the host: what was retired long ago is not known any more.
//
// Ping takes whole attachments, because a Store may lose rows. For an
// attachment of generation g:
//
//   - the row has generation g and this socket ID: it is refreshed;
//   - the row has generation g and another socket ID, or a newer generation:
//     retired;
//   - a tombstone of generation g or newer stands: retired;
//   - a generation above g was given within [TombstoneTTL] and its row has
//     expired: retired;
//   - none of these: the Store has lost writes. The attachment is written again
//     and is current. A row of an older generation becomes its previous one,
//     retired.
//
// # Writing a backend
//
// Do the compare-and-set in the backend, in one mutex section or one script,
// never as a read followed by a write. Keep all that belongs to one host in one
// place: a row that expires after its ttl, and beside it for [TombstoneTTL] the
// tombstone and the highest generation. Begin each method with the function of
// this package that checks its arguments ([CheckClaim] for Claim, and so on).
// Say in the backend's documentation only what differs: whose clock it is, what
// survives which failure.
//
// What there is to keep of one host, as one value under one key:
//
//	type host struct {
//		Current   *Attachment // the newest that was claimed; nil once it was retired
//		Expires   time.Time   // of Current; from then on it only fences
//		Previous  *Attachment // that Current replaced, or that Tombstone's had
//		Tombstone *Attachment // the newest that was retired without a successor
//		Until     time.Time   // of Tombstone: TombstoneTTL after it was written
//		Retired   []string    // IDs of the last RetiredKept that were retired
//	}
//
// The value may be forgotten when Until is over and Expires was [TombstoneTTL]
// ago. The highest generation given is the higher one of Current's and
// Tombstone's. A life of it, in which s1 to s3 are sockets, an hour is the ttl,
// and the clock makes the generations:
//
//	Claim(s1)      Current s1 of generation 100                   s1, no previous
//	Claim(s2)      Current s2 of 205, Previous s1                 s2, previous s1
//	Claim(s2)      the same: the reply was lost                   s2, previous s1
//	Ping(s1, 100)  nothing: 205 stands                            retired
//	Ping(s2, 205)  Expires and LastPing                           current
//	an hour later  nothing: Expires is over                       Current: ErrNotFound
//	Ping(s1, 100)  nothing: 205 was given within a day            retired
//	Ping(s2, 205)  Expires: it is written again                   current
//	Detach(s2)     Tombstone s2 of 205, Current nil, Previous s1  nil
//	Ping(s2, 205)  nothing: the tombstone is of 205               retired
//	Claim(s2)      nothing: it is the tombstone's                 ErrRetired
//	Claim(s1)      nothing: it is the previous one                ErrRetired
//	Claim(s3)      Current s3 of 310, no Previous                 s3, no previous
//	Detach(s2)     nothing: 310 stands                            nil
//	Claim(s1)      nothing: it was retired                        ErrRetired
//
// Then prove it:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, storetest.Config{Open: func(t *testing.T) storetest.Fixture {
//			a, b := open(t), open(t) // the same empty data, as two nodes see it
//			return storetest.Fixture{A: a, B: b, Advance: time.Sleep, Tick: 20 * time.Millisecond}
//		}})
//	}
package store
