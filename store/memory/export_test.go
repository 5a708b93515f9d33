package memory

// Held counts the entries in the maps and the rings, expired ones included.
func (s *Store) Held() (hosts, lists, nodes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.hosts) != len(s.hostRing.items) || len(s.sockets) != len(s.listRing.items) {
		return -1, -1, -1
	}
	return len(s.hosts), len(s.sockets), len(s.nodes)
}
