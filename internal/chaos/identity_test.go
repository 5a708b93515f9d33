//go:build linux

package chaos

import (
	"fmt"
	"sync"
	"time"
)

// identity says which process of a host has served a request, and on which of
// its control sockets the dial came. An agent does not tell its sockets apart:
// it refuses dials of older ones itself, and its socket is always 0.
type identity struct {
	host     string
	instance int // of the process; grows
	socket   int // of protocol 2: the control socket; grows over all instances
}

func (i identity) String() string { return fmt.Sprintf("%s/%d/%d", i.host, i.instance, i.socket) }

func parseIdentity(s string) (i identity, err error) {
	var host string
	var n int
	for n < len(s) && s[n] != '/' {
		n++
	}
	host = s[:n]
	_, err = fmt.Sscanf(s[n:], "/%d/%d", &i.instance, &i.socket)
	i.host = host
	return i, err
}

// roll knows when each identity of a host was confirmed by the relay: a hello or
// a first pong was seen by the host.
type roll struct {
	mu        sync.Mutex
	confirmed []confirmation // in order of time
}

type confirmation struct {
	identity
	at time.Time
}

func (r *roll) confirm(i identity) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.confirmed = append(r.confirmed, confirmation{i, time.Now()})
}

// newer returns the identity that was current when a request began, if it is
// another one than has served the request, and the latter was not confirmed
// again since. One that is not known here has answered before it heard that it
// is current.
func (r *roll) newer(served identity, begun time.Time) (confirmation, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var current confirmation
	var before, after bool // served was confirmed before the request, or since
	for _, c := range r.confirmed {
		switch late := !c.at.Before(begun); {
		case c.identity == served && late:
			after = true
		case c.identity == served:
			before, current = true, c
		case !late:
			current = c
		}
	}
	return current, before && !after && current.identity != served
}

// last is the identity that was confirmed last.
func (r *roll) last() (confirmation, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.confirmed) == 0 {
		return confirmation{}, false
	}
	return r.confirmed[len(r.confirmed)-1], true
}
