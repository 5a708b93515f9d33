package redis

var (
	Escape = escape
	Pack   = pack
	Unpack = unpack
)

// KeysOf returns all keys about a host, and about a node.
func (s *Store) KeysOf(hostID, nodeID string) (host, node []string) {
	return append(s.keys.host(hostID), s.keys.sockets(hostID)...), s.keys.node(nodeID)
}
