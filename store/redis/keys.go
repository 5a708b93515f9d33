package redis

import "strings"

// keys makes the names of keys. Everything about one host, and everything about
// one node, has the same hash tag, and so shares a slot of a Cluster.
type keys struct {
	prefix string // escaped
}

func newKeys(prefix string) keys { return keys{escape(prefix)} }

// host returns what the scripts about a host's control socket work on: the
// marker of the current socket and all that is remembered of the host.
func (k keys) host(id string) []string {
	base := k.prefix + "host:{" + escape(id) + "}"
	return []string{base + ":live", base}
}

// sockets returns the records of a host's client and dial sockets, and their
// deadlines.
func (k keys) sockets(hostID string) []string {
	base := k.prefix + "host:{" + escape(hostID) + "}"
	return []string{base + ":sockets", base + ":ends"}
}

// node returns a node's lease, and the incarnations that held its ID.
func (k keys) node(id string) []string {
	base := k.prefix + "node:{" + escape(id) + "}"
	return []string{base, base + ":held"}
}

// nodes returns the list of the IDs of nodes.
func (k keys) nodes() []string { return []string{k.prefix + "nodes"} }

// escaper keeps braces for the hash tag. It leaves no two strings equal, since
// the percent sign is escaped as well.
var escaper = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

func escape(s string) string { return escaper.Replace(s) }
