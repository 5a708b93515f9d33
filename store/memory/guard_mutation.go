//go:build dialback_mutation

package memory

// The guards of guard.go as variables, for the simulation.
var (
	guardCompareAndDelete = true
	guardTombstone        = true
	guardSeq              = true
	guardStart            = true
	guardBeat             = true
)

// TakeOutGuard takes out a guard until restore is called; ok is false if there
// is none of that name here. It exists only under the build tag
// dialback_mutation. Nothing else may be running.
func TakeOutGuard(name string) (restore func(), ok bool) {
	g := map[string]*bool{
		"compare-and-delete": &guardCompareAndDelete,
		"tombstone":          &guardTombstone,
		"seq":                &guardSeq,
		"start":              &guardStart,
		"beat":               &guardBeat,
	}[name]
	if g == nil {
		return nil, false
	}
	*g = false
	return func() { *g = true }, true
}
