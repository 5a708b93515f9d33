package relay

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// maxPresence is how many hosts one request may ask for.
const maxPresence = 50

// Presence says whether a host is online, as far as the Store knows.
type Presence struct {
	Online     bool
	LastSeenAt time.Time // its last ping by the Store's clock; zero if never seen
}

// Presence tells of each host whether it is online. A host that was never seen,
// or was forgotten, is offline. It fails with ErrStoreUnavailable, except for
// hosts of this node while Config.StoreOutage is ServeLocal, and with ctx's own
// error when that ends first.
func (s *Server) Presence(ctx context.Context, hostIDs ...string) (map[string]Presence, error) {
	for _, id := range hostIDs {
		if err := checkHostID(id); err != nil {
			return nil, err
		}
	}
	if s.outage.out() {
		return s.localPresence(hostIDs)
	}
	sctx, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
	defer cancel()
	seen, err := s.cfg.Store.LastSeen(sctx, hostIDs)
	switch {
	case err != nil && ctx.Err() != nil: // which says nothing of the Store
		return nil, ctx.Err()
	case err != nil:
		s.outage.observe(err)
		return s.localPresence(hostIDs)
	}
	m := make(map[string]Presence, len(hostIDs))
	for _, id := range hostIDs {
		sn := seen[id]
		m[id] = Presence{Online: sn.Attached && s.nodes.alive(sn.Incarnation), LastSeenAt: sn.LastPing}
	}
	return m, nil
}

// localPresence answers without the Store, if all the hosts are here.
func (s *Server) localPresence(hostIDs []string) (map[string]Presence, error) {
	if s.cfg.StoreOutage != ServeLocal {
		return nil, ErrStoreUnavailable
	}
	m := make(map[string]Presence, len(hostIDs))
	for _, id := range hostIDs {
		c := s.local(id)
		if c == nil || !c.fresh() {
			return nil, ErrStoreUnavailable
		}
		m[id] = Presence{Online: true, LastSeenAt: c.pingedAt()}
	}
	return m, nil
}

// local returns the host's current control socket on this node, or nil.
func (s *Server) local(hostID string) *controlConn {
	hub := s.registry.peek(hostID)
	if hub == nil {
		return nil
	}
	defer s.registry.release(hub)
	return hub.here()
}

func (c *controlConn) pingedAt() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastPing
}

// servePresence serves GET /presence?hostIds=a,b. Hosts that may not be seen
// are left out; without any credentials at all that is all of them.
func (s *Server) servePresence(w http.ResponseWriter, r *http.Request) {
	unbind(w)
	ids := splitList(r.URL.Query().Get("hostIds"))
	if len(ids) == 0 || len(ids) > maxPresence {
		s.writeError(w, r, "", badRequest("hostIds must name 1 to %d hosts", maxPresence))
		return
	}
	var visible []string
	for _, id := range ids {
		if err := checkHostID(id); err != nil {
			s.writeError(w, r, "", err)
			return
		}
		if _, _, err := s.authorize(s.cfg.AuthorizeClient, r, id); err == nil {
			visible = append(visible, id)
		}
	}
	found, err := s.Presence(r.Context(), visible...)
	if err != nil {
		s.writeError(w, r, "", err)
		return
	}
	type entry struct {
		Online     bool  `json:"online"`
		LastSeenAt int64 `json:"lastSeenAt,omitempty"` // milliseconds since 1970
	}
	hosts := make(map[string]entry, len(found))
	for id, p := range found {
		e := entry{Online: p.Online}
		if !p.LastSeenAt.IsZero() {
			e.LastSeenAt = p.LastSeenAt.UnixMilli()
		}
		hosts[id] = e
	}
	s.writeJSON(w, http.StatusOK, map[string]any{"hosts": hosts})
}

// serveWhoOwns serves GET /hosts/{hostID}/_whoowns: may I, and is it online.
func (s *Server) serveWhoOwns(w http.ResponseWriter, r *http.Request, hostID string) {
	unbind(w)
	r, _, err := s.authorize(s.cfg.AuthorizeClient, r, hostID)
	if err != nil {
		s.writeError(w, r, hostID, err)
		return
	}
	found, err := s.Presence(r.Context(), hostID)
	switch {
	case err != nil:
		s.writeError(w, r, hostID, err)
	case !found[hostID].Online:
		s.writeError(w, r, hostID, ErrHostOffline)
	default:
		s.writeJSON(w, http.StatusOK, map[string]any{"hostId": hostID, "online": true, "lastSeenAt": found[hostID].LastSeenAt.UnixMilli()})
	}
}

// serveHealth serves GET /health: for load balancers.
func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) {
	body := map[string]any{"ok": true, "proto": 2}
	status := http.StatusOK
	if s.outage.out() {
		body["degraded"] = true
	}
	for why, is := range map[string]bool{"draining": s.draining(), "superseded": s.nodes.isUsurped()} {
		if is {
			body["ok"], body[why] = false, true
			status = http.StatusServiceUnavailable
		}
	}
	s.writeJSON(w, status, body)
}

func (s *Server) writeJSON(w http.ResponseWriter, status int, v any) {
	b, _ := json.Marshal(v)
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	s.boundReply(w)
	w.WriteHeader(status)
	w.Write(append(b, '\n'))
}
