//go:build dialback_mutation

package relay

// The guards of guard.go as variables, for the simulation.
var (
	guardRetiredMark    = true
	guardTicketFence    = true
	guardLateClose      = true
	guardReplayRule     = true
	guardPoolGeneration = true
	guardPongConfirmed  = true
)

// TakeOutGuard takes out a guard until restore is called; ok is false if there
// is none of that name here. It exists only under the build tag
// dialback_mutation. Nothing else may be running.
func TakeOutGuard(name string) (restore func(), ok bool) {
	g := map[string]*bool{
		"retired mark":             &guardRetiredMark,
		"generation at the ticket": &guardTicketFence,
		"late-close isolation":     &guardLateClose,
		"replay rule":              &guardReplayRule,
		"generation in the pool":   &guardPoolGeneration,
		"pong after confirmation":  &guardPongConfirmed,
	}[name]
	if g == nil {
		return nil, false
	}
	*g = false
	return func() { *g = true }, true
}
