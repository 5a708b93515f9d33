package sim

import "time"

// writtenAgain is how soon after a loss of writes the Store must have a lost claim
// again: NodeBeat, after which a renewal tells the node of it, and a batch.
const writtenAgain = 6 * time.Second

// judgeLost requires of each claim that the Store has lost, I7 lost claim: its
// node has it written again within writtenAgain, unless a node or the Store
// failed meanwhile.
func (w *World) judgeLost() {
	for _, c := range w.ledger.lostClaims() {
		due := c.from + writtenAgain
		n := w.nodeNamed(c.of.att.Incarnation)
		if c.to <= due || n == nil || n.isDead() || w.causes.failing(c.from, due) {
			continue
		}
		w.tr.violated("I7 lost claim", "the Store lost the claim of %s at %.4fs, and until %.4fs its node did not write it again", c.of.name(), c.from.Seconds(), c.to.Seconds())
	}
}
