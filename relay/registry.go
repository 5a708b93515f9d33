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
	g.mu.Lock()
	hubs := make([]*hub, 0, len(g.hubs))
	for _, h := range g.hubs {
		hubs = append(hubs, h)
	}
	g.mu.Unlock()
	var cs []*controlConn
	for _, h := range hubs {
		h.mu.Lock()
		if h.current != nil {
			cs = append(cs, h.current)
		}
		h.mu.Unlock()
	}
	return cs
}

// streams returns all streams and exchanges of this node.
func (g *registry) streams() []*stream {
	g.mu.Lock()
	hubs := make([]*hub, 0, len(g.hubs))
	for _, h := range g.hubs {
		hubs = append(hubs, h)
	}
	g.mu.Unlock()
	var all []*stream
	for _, h := range hubs {
		all = append(all, h.liveStreams()...)
	}
	return all
}
