package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Schedule is all that a seed decides: who is there, what happens, and when.
type Schedule struct {
	Seed  uint64
	Nodes int
	Hosts []Host
	Steps []Step // by their time

	homes  map[string]int
	delays map[string]time.Duration // of all links of an actor
	node   time.Duration            // between nodes
}

// Host is one host of a schedule.
type Host struct {
	Name string
	kind hostKind
}

// Step is one thing that happens.
type Step struct {
	At   time.Duration
	Text string
	run  func(*World)
}

// slots are the names of the nodes' places.
func (s *Schedule) slots() []string {
	list := make([]string, s.Nodes)
	for i := range list {
		list[i] = fmt.Sprintf("n%d", i)
	}
	return list
}

func (s *Schedule) isSlot(name string) bool { return slices.Contains(s.slots(), name) }

func (s *Schedule) hostKind(name string) hostKind {
	for _, h := range s.Hosts {
		if h.Name == name {
			return h.kind
		}
	}
	return agentInProcess
}

// delayOf is the delay of a link, one way.
func (s *Schedule) delayOf(id linkID) time.Duration {
	if s.isSlot(id.from) {
		return s.node
	}
	return s.delays[id.from]
}

func (s *Schedule) slowestDelay() time.Duration {
	d := s.node
	for _, x := range s.delays {
		d = max(d, x)
	}
	return d
}

// String is the schedule as lines of text.
func (s *Schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d nodes, %v between them\n", s.Seed, s.Nodes, s.node)
	for _, h := range s.Hosts {
		kind := [...]string{"an agent", "an agent that forwards", "a v2 host", "an agent of a relay that knows no ping"}[h.kind]
		fmt.Fprintf(&b, "  %s is %s, %v away, led to %s\n", h.Name, kind, s.delays[h.Name], map[bool]string{true: "any node", false: fmt.Sprintf("n%d", s.homes[h.Name])}[s.homes[h.Name] < 0])
	}
	for _, st := range s.Steps {
		fmt.Fprintf(&b, "%10.4fs  %s\n", st.At.Seconds(), st.Text)
	}
	return b.String()
}
