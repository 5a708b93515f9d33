package sim

import (
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"
)

// random is a source of its own for one use, so that what one process draws
// does not hang on how many others have drawn before.
type random struct {
	mu sync.Mutex
	r  *rand.Rand
}

func newRandom(seed uint64, name string) *random {
	h := fnv.New64a()
	h.Write([]byte(name))
	return &random{r: rand.New(rand.NewPCG(seed, h.Sum64()))}
}

// Float64 is in [0,1).
func (r *random) Float64() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.r.Float64()
}

// intn is in [0,n).
func (r *random) intn(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.r.IntN(n)
}

// within is a time from lo to hi, in milliseconds' steps.
func (r *random) within(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(r.intn(int((hi-lo)/time.Millisecond)+1))*time.Millisecond
}

// chance is true n times in 100.
func (r *random) chance(n int) bool { return r.intn(100) < n }

// pick is one of list.
func pick[T any](r *random, list ...T) T { return list[r.intn(len(list))] }
