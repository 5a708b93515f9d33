package relay

import "sync"

// registry is the hosts that this node has anything to do with: a control
// socket, a stream, or somebody who waits for one.
type registry struct {
	mu   sync.Mutex
	hubs map[string]*hub // each with users > 0
}

// acquire returns the hub of hostID, made if need be, and holds it until
// release.
func (g *registry) acquire(hostID string) *hub {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.hubs[hostID]
	if h == nil {
		h = &hub{hostID: hostID}
		g.hubs[hostID] = h
	}
	h.users++
	return h
}

// release lets go of h; the last one removes it.
func (g *registry) release(h *hub) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if h.users--; h.users == 0 {
		delete(g.hubs, h.hostID)
	}
}

// peek returns the hub of hostID, held until release, or nil.
func (g *registry) peek(hostID string) *hub {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.hubs[hostID]
	if h != nil {
		h.users++
	}
	return h
}

// controls returns the current control sockets of all hosts here.
func (g *registry) controls() []*controlConn {
	var cs []*controlConn
	for _, h := range g.all() {
		if c := h.here(); c != nil {
			cs = append(cs, c)
		}
		g.release(h)
	}
	return cs
}

// streams returns all streams and exchanges of this node.
func (g *registry) streams() []*stream {
	var sts []*stream
	for _, h := range g.all() {
		sts = append(sts, h.liveStreams()...)
		g.release(h)
	}
	return sts
}

// all returns the hubs, each held until release.
func (g *registry) all() []*hub {
	g.mu.Lock()
	defer g.mu.Unlock()
	hubs := make([]*hub, 0, len(g.hubs))
	for _, h := range g.hubs {
		h.users++
		hubs = append(hubs, h)
	}
	return hubs
}
