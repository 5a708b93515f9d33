//go:build linux

package chaos

import (
	"math/rand/v2"
	"testing"
	"time"
)

// calmTime is between two faults, at least: nothing may fail in it.
const calmTime = 2 * time.Second

func TestChaos(t *testing.T) {
	if *chaosFor <= 0 {
		t.Skip("takes long: -chaos.for=10m runs it, and .ci/run does so for a minute")
	}
	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	t.Logf("the faults come from -chaos.seed=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t)
	c := newClients(w)
	c.start()
	defer c.end()

	begun := time.Now()
	time.Sleep(calmTime)
	var faults []*fault
	for deck := (deck{}); time.Since(begun) < *chaosFor; {
		faults = append(faults, w.make(deck.next(rng), rng))
		time.Sleep(calmTime)
	}
	took := time.Since(begun)
	c.end()
	w.ledger.judge(faults)
	for _, m := range w.members {
		m.now.stop()
	}
	left := w.inspect()
	w.ledger.report(t)
	r := report{w, seed, took, faults, left}
	t.Logf("\n%s", r)
	if *chaosReport != "" {
		r.write(*chaosReport)
	}
}

// deck deals kinds of faults: all of them, in random order, before one comes
// again.
type deck struct{ left []*kind }

func (d *deck) next(rng *rand.Rand) *kind {
	if len(d.left) == 0 {
		for _, i := range rng.Perm(len(kinds)) {
			if *chaosOnly == "" || *chaosOnly == kinds[i].name {
				d.left = append(d.left, kinds[i])
			}
		}
	}
	k := d.left[0]
	d.left = d.left[1:]
	return k
}
