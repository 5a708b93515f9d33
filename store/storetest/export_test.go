package storetest

import "context"

// CaseNames returns the names of all cases.
func CaseNames() []string {
	var names []string
	for _, tc := range allCases() {
		names = append(names, tc.name)
	}
	return names
}

// Failures runs all cases against what open returns, each once, and returns
// what failed by the name of the case.
func Failures(ctx context.Context, open func() Fixture) map[string][]string {
	failed := make(map[string][]string)
	for _, tc := range allCases() {
		if msgs := record(ctx, func(tb tb) { tc.run(newEnv(tb, open())) }); len(msgs) > 0 {
			failed[tc.name] = msgs
		}
	}
	return failed
}
