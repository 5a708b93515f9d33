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

// Parse reads a reply as every script's reply is read, one after the other.
func Parse(reply any) []error {
	_, claim := parseClaimed("h", reply)
	_, current := parseAttachment("h", reply)
	_, records := appendRecords(nil, "h", reply)
	_, _, node := parseNode("n", reply)
	_, _, seen := parseSeen(reply)
	return []error{claim, current, records, node, seen}
}

// ErrReply says that a reply was not understood.
var ErrReply = errReply

// Fields and ParseFields are the two directions of a record.
var (
	Fields      = fields
	ParseFields = parseFields
)
