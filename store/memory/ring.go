package memory

// ring holds all entries of one kind, so that a sweep can go around them a few
// at a time. (Ranging over a map for that costs time in proportion to the
// largest size it ever had.)
type ring[E slotted] struct {
	items []E
	hand  int
}

// slotted is an entry that knows its place in the ring.
type slotted interface {
	comparable
	place() *int
}

func (r *ring[E]) add(e E) {
	*e.place() = len(r.items)
	r.items = append(r.items, e)
}

// remove puts the last entry in the place of e. It gives memory back when most
// of the ring has gone.
func (r *ring[E]) remove(e E) {
	var none E
	last := len(r.items) - 1
	i := *e.place()
	r.items[i] = r.items[last]
	*r.items[i].place() = i
	r.items[last] = none
	r.items = r.items[:last]
	if last >= 64 && last < cap(r.items)/4 {
		r.items = append(make([]E, 0, 2*last), r.items...)
	}
}

// next returns the entry before the hand and moves the hand on to it. It goes
// downward, so that the entry that remove puts in a place has been seen. The
// ring must not be empty.
func (r *ring[E]) next() E {
	if r.hand == 0 || r.hand > len(r.items) {
		r.hand = len(r.items)
	}
	r.hand--
	return r.items[r.hand]
}
