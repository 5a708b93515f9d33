package relay

import "github.com/dialback/dialback/store"

// before reports whether socket a of a host is older than b. Their generations
// say so. A Store that has lost a claim, and whose clock is behind, may give the
// same one out again: then all but b itself are older than b.
func before(a, b store.Ref) bool {
	return a.Generation < b.Generation || a.Generation == b.Generation && b.ID != "" && a.ID != b.ID
}

// newer is the newer one of a and b; of one generation it is b.
func newer(a, b store.Ref) store.Ref {
	if b.Generation >= a.Generation {
		return b
	}
	return a
}
