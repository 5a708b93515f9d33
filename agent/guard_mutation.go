//go:build dialback_mutation

package agent

// The guards of guard.go as variables, for the simulation.
var guardOpenedOnce = true

// TakeOutGuard takes out a guard until restore is called; ok is false if there
// is none of that name here. It exists only under the build tag
// dialback_mutation. Nothing else may be running.
func TakeOutGuard(name string) (restore func(), ok bool) {
	if name != "opened once" {
		return nil, false
	}
	guardOpenedOnce = false
	return func() { guardOpenedOnce = true }, true
}
