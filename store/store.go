package store

import (
	"context"
	"time"
)

// TombstoneTTL is how long a Store remembers that an attachment was retired,
// that a generation was given, and that an incarnation of a node was replaced.
const TombstoneTTL = 24 * time.Hour

// RetiredKept is how many of the sockets of a host that were retired last a
// Store knows by their IDs.
const RetiredKept = 8

// Store holds attachments and node leases. It keeps the contract in the
// documentation of this package; the methods say what each adds to it.
type Store interface {
	Routes
	Sockets
	Nodes
	// Close releases what the Store itself opened; it does not close a client
	// that it was given. Later calls of any method return ErrClosed, except
	// Close, which returns nil.
	Close() error
}

// Claimed is the answer of Claim.
type Claimed struct {
	// Current is the attachment that was claimed, with Generation and LastPing
	// set.
	Current Attachment
	// Previous is the attachment that this claim retired, with Retired and
	// RetiredReason set; the zero Attachment (ID "") if there was none. One
	// that had expired, or was retired before, was not retired by this claim.
	Previous Attachment
}

// Seen is what the Store remembers of a host.
type Seen struct {
	// LastPing is by the Store's clock. It is the zero Time if the Store does
	// not know it: the row was lost before its tombstone was written.
	LastPing time.Time
	// Attached is true while a current attachment stands; then NodeID and
	// Incarnation say where (whether that node lives is the relay's to judge).
	Attached    bool
	NodeID      string
	Incarnation string
	Generation  uint64
	Reason      Reason // of the tombstone, when not attached; empty if expired
	// LeftFor is how long ago the tombstone was written, by the Store's clock,
	// when Reason is not empty; a little more or less does not matter.
	LeftFor time.Duration
}

// Routes records which control socket is each host's current one.
//
// At most one attachment per host is current. Claiming again retires the
// current one, wherever it is; its holder learns of it at its next Ping.
type Routes interface {
	// Claim makes a, of role host, the current attachment of a.HostID for ttl
	// and returns it with its generation, together with the attachment that it
	// retired. Generation, LastPing, Retired and RetiredReason of a are
	// ignored.
	//
	// While the socket a.ID is current, Claim changes nothing (except that ttl
	// may run anew) and gives the same answer again: a caller that lost the
	// reply claims again with the same ID and still learns which socket it
	// replaced. A caller that gives up instead must Detach what it may have
	// claimed.
	//
	// ErrRetired: a is late (see Fencing), and nothing has changed.
	Claim(ctx context.Context, a Attachment, ttl time.Duration) (Claimed, error)

	// Current returns the current attachment of hostID, or ErrNotFound.
	// Whether its node lives is the caller's to judge.
	Current(ctx context.Context, hostID string) (Attachment, error)

	// Ping refreshes those of as that are current: LastPing becomes the
	// Store's now and ttl runs anew; nothing else of the row changes. The
	// result has one entry per argument: true means current, false means
	// retired. A row that the Store has lost is written again from the
	// argument, where the rules under Fencing allow it.
	//
	// Each host is changed at once, the batch is not: after an error each of
	// as may or may not have been refreshed. It may be the error of a single one,
	// where hosts are kept in several places: the relay then asks for each of
	// them alone, and keeps apart those for which that fails. The same host may
	// occur twice.
	Ping(ctx context.Context, as []Attachment, ttl time.Duration) ([]bool, error)

	// Retire marks the attachment for ever and leaves a tombstone with reason,
	// also when its row has expired or was lost, so that no Ping writes it
	// again. It has no effect when the attachment is retired already (the
	// first reason stays), or when the row or the tombstone is of a newer
	// generation, or of the same with another socket ID. A row of an older
	// generation is one that the attachment had replaced before the Store lost
	// writes; it is retired with it.
	Retire(ctx context.Context, ref Ref, reason Reason) error

	// Detach is Retire with ReasonGone, by the socket's own holder when the
	// socket ended.
	Detach(ctx context.Context, ref Ref) error

	// LastSeen tells of each host what row or tombstone say; hosts that the
	// Store never saw, or has forgotten, are left out. A host whose row has
	// expired without a tombstone may be left out or reported as not attached,
	// without a reason. The map is never nil.
	LastSeen(ctx context.Context, hostIDs []string) (map[string]Seen, error)
}

// Sockets records client and dial sockets, for people who look. Records are
// written behind; losing one is harmless. They are independent of the host's
// row: neither Claim nor Retire touches them.
type Sockets interface {
	// PutSockets writes records of role client or dial. Each expires ttl after
	// it was last put. LastPing of as is ignored.
	PutSockets(ctx context.Context, as []Attachment, ttl time.Duration) error

	// DropSockets removes records; those that are absent are passed over.
	DropSockets(ctx context.Context, refs []SocketRef) error

	// Sockets lists the host's records with ID above after, ordered by ID
	// (byte by byte), limit at most. The next page begins after the last ID.
	// No records, or none above after, is an empty list. A limit below 1 is
	// ErrInvalid.
	Sockets(ctx context.Context, hostID, after string, limit int) ([]Attachment, error)
}

// Nodes records which relay nodes live.
//
// A new incarnation of a node ID takes over. The Store remembers the incarnation
// that held the ID before, even if its lease has run out or was dropped, and
// refuses it from then on. It does so for TombstoneTTL and for the 16
// incarnations of a node that were replaced last; it may do so for longer.
//
// A Store that loses writes may forget which of two processes was replaced, and
// the older one would come as the new one. Therefore a live lease is not taken
// over by an incarnation with an earlier StartedAt.
type Nodes interface {
	// KeepNode registers n, or renews its lease and updates its record, for
	// lease from now. created says that no live lease of this incarnation
	// stood, or only one with a Beat below that of n less one: it is new, or
	// had expired, or the Store has lost the renewals after that one; rows of
	// this node may have been lost meanwhile.
	//
	// ErrRetired: another incarnation of this node ID has taken over, or has a
	// live lease and a later StartedAt. Nothing is changed then.
	KeepNode(ctx context.Context, n Node, lease time.Duration) (created bool, err error)

	// Nodes lists the nodes with a live lease, ordered by ID (byte by byte).
	Nodes(ctx context.Context) ([]Node, error)

	// DropNode ends the lease of that incarnation; another's is not touched.
	DropNode(ctx context.Context, id, incarnation string) error
}
