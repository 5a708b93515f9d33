package store

import (
	"fmt"
	"time"
)

// Limits of the arguments of a Store.
const (
	MaxIDLen      = 256       // bytes of any ID
	MaxMetaLen    = 1024      // bytes of Attachment.Meta
	MaxGeneration = 1<<53 - 1 // also of Attachment.Seq
)

// The functions below check the arguments of the method that they are named
// after. A backend calls them first, so that every backend refuses the same
// things. Their errors wrap ErrInvalid.

// CheckClaim checks the arguments of Claim.
func CheckClaim(a Attachment, ttl time.Duration) error {
	if err := checkAttachment(a); err != nil {
		return err
	}
	if a.Role != RoleHost {
		return invalid("role %q of socket %q, want %q", a.Role, a.ID, RoleHost)
	}
	return checkTTL("ttl", ttl)
}

// CheckCurrent checks the arguments of Current.
func CheckCurrent(hostID string) error {
	return checkID("host ID", hostID)
}

// CheckPing checks the arguments of Ping.
func CheckPing(as []Attachment, ttl time.Duration) error {
	for i := range as {
		if err := CheckClaim(as[i], ttl); err != nil {
			return err
		}
		if err := checkGeneration(as[i].Generation); err != nil {
			return err
		}
	}
	return checkTTL("ttl", ttl)
}

// CheckRetire checks the arguments of Retire.
func CheckRetire(ref Ref, reason Reason) error {
	if err := checkID("reason", string(reason)); err != nil {
		return err
	}
	return CheckDetach(ref)
}

// CheckDetach checks the arguments of Detach.
func CheckDetach(ref Ref) error {
	if err := checkID("host ID", ref.HostID); err != nil {
		return err
	}
	if err := checkID("socket ID", ref.ID); err != nil {
		return err
	}
	return checkGeneration(ref.Generation)
}

// CheckLastSeen checks the arguments of LastSeen.
func CheckLastSeen(hostIDs []string) error {
	for _, id := range hostIDs {
		if err := checkID("host ID", id); err != nil {
			return err
		}
	}
	return nil
}

// CheckPutSockets checks the arguments of PutSockets.
func CheckPutSockets(as []Attachment, ttl time.Duration) error {
	for i := range as {
		if err := checkAttachment(as[i]); err != nil {
			return err
		}
		if r := as[i].Role; r != RoleClient && r != RoleDial {
			return invalid("role %q of socket %q, want %q or %q", r, as[i].ID, RoleClient, RoleDial)
		}
	}
	return checkTTL("ttl", ttl)
}

// CheckDropSockets checks the arguments of DropSockets.
func CheckDropSockets(refs []SocketRef) error {
	for _, ref := range refs {
		if err := checkID("host ID", ref.HostID); err != nil {
			return err
		}
		if err := checkID("socket ID", ref.ID); err != nil {
			return err
		}
	}
	return nil
}

// CheckSockets checks the arguments of Sockets.
func CheckSockets(hostID, after string, limit int) error {
	if err := checkID("host ID", hostID); err != nil {
		return err
	}
	if limit < 1 {
		return invalid("limit %d, want 1 or more", limit)
	}
	return checkLen("after", after)
}

// CheckKeepNode checks the arguments of KeepNode.
func CheckKeepNode(n Node, lease time.Duration) error {
	if err := CheckDropNode(n.ID, n.Incarnation); err != nil {
		return err
	}
	return checkTTL("lease", lease)
}

// CheckDropNode checks the arguments of DropNode.
func CheckDropNode(id, incarnation string) error {
	if err := checkID("node ID", id); err != nil {
		return err
	}
	return checkID("incarnation", incarnation)
}

// checkAttachment checks what all roles have in common.
func checkAttachment(a Attachment) error {
	if err := checkID("host ID", a.HostID); err != nil {
		return err
	}
	if err := checkID("socket ID", a.ID); err != nil {
		return err
	}
	if err := checkLen("node ID", a.NodeID); err != nil {
		return err
	}
	if err := checkLen("incarnation", a.Incarnation); err != nil {
		return err
	}
	if err := checkLen("instance", a.Instance); err != nil {
		return err
	}
	if err := checkLen("stream ID", a.StreamID); err != nil {
		return err
	}
	if a.Seq > MaxGeneration {
		return invalid("seq %d, want less than 1<<53", a.Seq)
	}
	if len(a.Meta) > MaxMetaLen {
		return invalid("meta of %d bytes, want %d at most", len(a.Meta), MaxMetaLen)
	}
	return nil
}

func checkID(name, id string) error {
	if id == "" {
		return invalid("empty %s", name)
	}
	return checkLen(name, id)
}

func checkLen(name, id string) error {
	if len(id) > MaxIDLen {
		return invalid("%s of %d bytes, want %d at most", name, len(id), MaxIDLen)
	}
	return nil
}

func checkGeneration(g uint64) error {
	if g == 0 || g > MaxGeneration {
		return invalid("generation %d, want 1 to 1<<53-1", g)
	}
	return nil
}

func checkTTL(name string, ttl time.Duration) error {
	if ttl <= 0 {
		return invalid("%s %v, want more than 0", name, ttl)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}
