package sim

// Guard is a place in the code that an invariant hangs on. The simulation is
// only worth what it finds: each one is taken out once, and must be missed. The
// names are those of the switches in guard.go of relay, store/memory and
// transport.
type Guard struct {
	Name string
	// Rules are the observers' rules that may notice.
	Rules []string
}

// Guards lists them all, in the order of the table in ARCHITECTURE.md.
var Guards = []Guard{
	{"retired mark", []string{"I7 retired mark"}},
	{"generation at the ticket", []string{"I1 redemption", "I1 service"}},
	{"generation in the pool", []string{"I1 service"}},
	{"compare-and-delete", []string{"I7 compare-and-delete"}},
	{"tombstone", []string{"I7 tombstone"}},
	{"seq", []string{"I1 seq"}},
	{"pongSeen", []string{"I2 pongSeen"}},
	{"late-close isolation", []string{"I3 true", "I3 well again", "I3 quick"}},
	{"replay rule", []string{"I6 at most once", "I6 not reached"}},
	{"pong after confirmation", []string{"I2 pong"}},
	{"opened once", []string{"I6 at most once"}},
	{"start", []string{"I3 well again", "I8 nothing left"}},
	{"beat", []string{"I7 lost claim"}},
}
