package relay

import (
	"context"
	"sync"
	"time"

	"github.com/dialback/dialback/store"
	"github.com/google/uuid"
)

// stream is one stream or exchange: it counts against its host's limit, can be
// ended by revoke and expiry, and is bound to nothing but its own two sockets.
type stream struct {
	// Immutable after begin.
	id     string
	srv    *Server
	hub    *hub
	ctx    context.Context // ends when the stream is aborted or finished
	cancel context.CancelCauseFunc
	info   StreamInfo
	expiry *time.Timer // of the client's credentials; may be nil

	// Guarded by mu.
	mu      sync.Mutex
	records []store.Attachment
}

// begin makes a stream for a client with identity id; finish ends it. ctx is
// the request's.
func (s *Server) begin(ctx context.Context, hub *hub, t Target, id Identity) (*stream, error) {
	if err := s.accepting(true); err != nil {
		return nil, err
	}
	st := &stream{id: uuid.NewString(), srv: s, hub: hub}
	st.info = StreamInfo{ID: st.id, HostID: hub.hostID, Service: t.Service, Subject: id.Subject}
	st.ctx, st.cancel = context.WithCancelCause(ctx) // before a revoke can find it
	if err := hub.addStream(st, s.cfg.MaxStreams); err != nil {
		st.cancel(nil)
		return nil, err
	}
	s.stats.streams.Add(1)
	if !id.ExpiresAt.IsZero() {
		st.expiry = time.AfterFunc(time.Until(id.ExpiresAt), func() { st.abort(ErrUnauthorized) })
	}
	if h := s.cfg.Hooks.StreamOpened; h != nil {
		h(st.info)
	}
	return st, nil
}

// abort ends the stream from outside, for the reason err.
func (st *stream) abort(err error) { st.cancel(err) }

// aborted returns the reason of an abort, or nil.
func (st *stream) aborted() error {
	if st.ctx.Err() == nil {
		return nil
	}
	switch err := context.Cause(st.ctx); err {
	case ErrUnauthorized, ErrRevoked, ErrDraining, ErrClosed:
		return err
	}
	return nil
}

// why is the reason of the stream's abort, or else otherwise: an abort closes
// sockets, and their ends must not be taken for the cause.
func (st *stream) why(otherwise error) error {
	if err := st.aborted(); err != nil {
		return err
	}
	return otherwise
}

// opened records the stream's two sockets.
func (st *stream) opened(host store.Attachment) {
	now := time.Now()
	records := make([]store.Attachment, 0, 2)
	for _, role := range []store.Role{store.RoleClient, store.RoleDial} {
		records = append(records, store.Attachment{
			ID: st.id + "-" + string(role), HostID: st.hub.hostID, NodeID: st.srv.nodeID, Incarnation: st.srv.incarnation,
			Role: role, Proto: host.Proto, ConnectedAt: now, StreamID: st.id,
		})
	}
	st.mu.Lock()
	st.records = records
	st.mu.Unlock()
	st.srv.recorder.put(records...)
}

// finish ends the bookkeeping. It is called once.
func (st *stream) finish() {
	st.mu.Lock()
	records := st.records
	st.records = nil
	st.mu.Unlock()
	if st.expiry != nil {
		st.expiry.Stop()
	}
	st.cancel(nil)
	st.hub.removeStream(st)
	st.srv.stats.streams.Add(-1)
	if len(records) > 0 {
		st.srv.recorder.drop(records...)
	}
	if h := st.srv.cfg.Hooks.StreamClosed; h != nil {
		h(st.info)
	}
}
