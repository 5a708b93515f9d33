package relay

import (
	"context"
	"errors"
	"log/slog"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/transport"
)

// Revoke ends a host's control socket and all its streams with close code
// 4403, and marks the socket retired in the Store first. reason is for the log
// and for the host. The host can attach again only if AuthorizeHost lets it.
//
// It fails with ErrStoreUnavailable if the mark could not be written; what is
// on this node has ended all the same. It does not stop half way when ctx ends,
// and takes no longer than a few StoreTimeouts.
func (s *Server) Revoke(ctx context.Context, hostID, reason string) error {
	if err := checkHostID(hostID); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	reason = transport.CutReason(reason)
	s.log.Info("revoke", slog.String("host", hostID), slog.String("reason", reason))
	err := s.revokeInStore(ctx, hostID)
	s.revokeHere(hostID, reason)
	s.tellAll("/node/revoke", nodeRevoke{hostID, reason})
	return err
}

// revokeHere ends what this node has of the host. A socket of it that attaches
// just now finds that out by itself.
func (s *Server) revokeHere(hostID, reason string) {
	if hub := s.registry.peek(hostID); hub != nil {
		defer s.registry.release(hub)
		if c := hub.revoke(); c != nil {
			c.retire(store.ReasonRevoked, transport.CloseForbidden, transport.CutReason("revoked: "+reason))
		}
		for _, st := range hub.liveStreams() {
			st.abort(ErrRevoked)
		}
		hub.dropIdle() // after that: no exchange puts its stream back any more
	}
}

// revokeInStore retires the host's current attachment, wherever its socket is.
func (s *Server) revokeInStore(ctx context.Context, hostID string) error {
	h := s.registry.acquire(hostID)
	defer s.registry.release(h)
	att, err := s.current(ctx, h)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = s.retireInStore(ctx, att.Ref(), store.ReasonRevoked)
		s.outage.observe(err)
	}
	if err != nil {
		return ErrStoreUnavailable
	}
	return nil
}
