package store

import "time"

// Role says what a socket is for.
type Role string

const (
	RoleHost   Role = "host"   // a host's control socket
	RoleClient Role = "client" // the client's side of a stream
	RoleDial   Role = "dial"   // the host's side of a stream: a dial-back
)

// Reason says why an attachment was retired.
type Reason string

const (
	ReasonReplaced Reason = "replaced" // a newer socket of the host took over
	ReasonStale    Reason = "stale"    // silent for too long
	ReasonRevoked  Reason = "revoked"  // by Server.Revoke
	ReasonGone     Reason = "gone"     // the socket ended
)

// Attachment is the persisted record of one socket.
//
// A Store keeps all its fields as they were given, except those that say that
// the Store sets them.
type Attachment struct {
	ID          string // of the socket: a UUID
	HostID      string // the host that the socket belongs to, or reaches
	NodeID      string // the relay node that holds the socket
	Incarnation string // of that node: a UUID per process start
	Role        Role

	// Generation fences the control sockets of one host. The Store sets it in
	// Claim; it only ever grows. Zero for other roles.
	Generation uint64
	// Proto is the protocol version that the host announced; 2 if none.
	Proto int
	// Instance and Seq are the agent process (a UUID) and its connection
	// counter, below 1<<53; empty and zero for hosts that send none.
	Instance string
	Seq      uint64

	ConnectedAt time.Time // by the node's clock; for people only
	// LastPing is when the Store last heard of the socket, by the Store's
	// clock. The Store sets it in Claim, Ping and PutSockets.
	LastPing time.Time

	// Retired and RetiredReason are set by the Store, in Claimed.Previous.
	Retired       bool
	RetiredReason Reason

	StreamID string // roles client and dial
	Meta     []byte // what AuthorizeHost attached; 1 KiB at most
}

// Ref returns the reference that names a in a compare-and-set.
func (a Attachment) Ref() Ref {
	return Ref{HostID: a.HostID, ID: a.ID, Generation: a.Generation}
}

// SocketRef returns the reference that names a, a client or dial socket, in
// DropSockets.
func (a Attachment) SocketRef() SocketRef {
	return SocketRef{HostID: a.HostID, ID: a.ID}
}

// Ref names one control socket of one host for a compare-and-set.
type Ref struct {
	HostID     string
	ID         string
	Generation uint64
}

// SocketRef names the record of one client or dial socket.
type SocketRef struct {
	HostID string
	ID     string
}
