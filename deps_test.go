package dialback_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/dialback/dialback"

const (
	websocket = "github.com/coder/websocket"
	goRedis   = "github.com/redis/go-redis/v9"
	bbolt     = "go.etcd.io/bbolt"
	uuid      = "github.com/google/uuid"
	rate      = "golang.org/x/time/rate"
	goleak    = "go.uber.org/goleak"
)

// rule says what a package may import beside the standard library, and why
// nothing else. Packages of this module are named by their directories.
type rule struct {
	may []string
	why string
}

// rules has every package of the module. A name that ends in /... stands for
// it and all below it.
var rules = map[string]rule{
	".": {nil, "the root package is documentation: whoever imports it must get nothing else"},
	"transport": {[]string{websocket},
		"transport is all that relay and agent agree on; what it took from either would be protocol that PROTOCOL.md does not know"},
	"agent": {[]string{"transport", uuid},
		"the agent is linked into small binaries of hosts, and must not be able to cheat: what it shares with the relay goes over the wire"},
	"store": {nil,
		"the contract is what third parties implement: it must not make them take a version of anything"},
	"store/memory": {[]string{"store"}, "a backend knows the contract and nothing of who calls it"},
	"store/redis":  {[]string{"store", goRedis}, "a backend knows the contract and nothing of who calls it"},
	"relay": {[]string{"transport", "store", uuid, rate},
		"the relay works on any Store: a backend that it imported would be linked into every server, and become the silent default"},

	"store/storetest":         {[]string{"store"}, "the suite must fit any backend, one outside this module too"},
	"transport/transporttest": {[]string{"transport"}, "the suite must fit any Conn"},
	"relaytest": {[]string{"agent", "relay", "store", "store/memory", "store/storetest", "transport", "internal/memnet", uuid},
		"relaytest is for users' tests, which must not need a server beside them"},

	"internal/sim": {[]string{"agent", "relay", "store", "store/memory", "store/storetest", "transport", "internal/memnet"},
		"the simulation plays all parts, and looks at the Store and the wire as an outsider: no part may know it, and only tests import it"},
	"internal/memnet":    {nil, "a network knows nothing of what goes over it"},
	"internal/hostile":   {nil, "what it sends is no protocol that it could know"},
	"internal/tooltest":  {nil, "it finds programs and knows none of ours"},
	"internal/redistest": {[]string{"internal/tooltest", goRedis}, "it starts a Redis for tests of the store, which import it"},
	"internal/proctest":  {[]string{"internal/tooltest", goleak}, "it runs the command as a process, and knows it by its flags and its output only"},

	"cmd/dialback": {[]string{"agent", "relay", "store", "store/memory", "store/redis", "transport", goRedis},
		"the command is a user of the library: what it needs and cannot import, others cannot have either"},
	"examples/...": {[]string{"agent", "relay", "relaytest", "store", "store/memory", "store/redis", "store/storetest", "transport", websocket, goRedis},
		"examples are what users write: no internal package. Services in them may take any WebSocket library"},
	"examples/customstore/...": {[]string{"relay", "store", "examples/customstore/boltstore", bbolt},
		"it is a module of its own, for the sake of its database: as a third party's Store, it knows the contract only"},
	"bench":                {nil, "benchmarks are _test files only"},
	"internal/clustertest": {nil, "tests of several processes are _test files only"},
	"internal/chaos":       {nil, "tests of several processes are _test files only"},
	"internal/soak":        {nil, "tests of several processes are _test files only"},
}

// testPackages are for _test files to import, and so may import testing.
var testPackages = []string{
	"store/storetest", "transport/transporttest", "relaytest", "internal/tooltest", "internal/redistest", "internal/sim", "internal/proctest",
}

// testOnly are imports that nothing but testPackages and _test files may have,
// by their first path elements.
var testOnly = map[string]string{
	"testing":                      "a server that links testing carries test code into production",
	"net/http/httptest":            "it is for tests",
	module + "/relaytest":          "it imports testing",
	module + "/store/storetest":    "it imports testing",
	module + "/internal/sim":       "it is for its own tests, and breaks all that it holds",
	module + "/internal/tooltest":  "it imports testing",
	module + "/internal/redistest": "it imports testing",
	module + "/internal/proctest":  "it imports testing",
	"go.uber.org/goleak":           "it is for tests",
	"github.com/alicebob":          "miniredis is for tests",
	"golang.org/x/net":             "only its nettest is used, by tests; net/http has what else it has",
}

// nowhere are imports that not even a test may have.
var nowhere = map[string]string{
	"nhooyr.io/websocket":          "that path is frozen: the library lives on as " + websocket,
	"github.com/gorilla/websocket": "one WebSocket library is enough",
	"github.com/stretchr/testify":  "tests say what they want in Go, with the standard library",
	"net/http/pprof":               "it registers handlers on import: no globals (I8)",
	"expvar":                       "it registers a handler on import: no globals (I8)",
}

// source is one Go file of the module.
type source struct {
	pkg    string // directory of its package in the module
	isTest bool
	fset   *token.FileSet
	file   *ast.File
}

// sources parses all files of the module, for whatever system they are. It
// reads them in this process so that go test knows when its cache is void.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		switch {
		case d.IsDir() && name != "." && (base == "testdata" || base == "node_modules" || strings.HasPrefix(base, ".")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(base, ".go"):
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			return err
		}
		all = append(all, source{
			pkg: filepath.ToSlash(filepath.Dir(name)), isTest: strings.HasSuffix(base, "_test.go"), fset: fset, file: file,
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 100 {
		t.Fatalf("found %d Go files: this test has nothing to test", len(all))
	}
	return all
}

// The import graph is the architecture. Test files are free, except for what
// may be nowhere.
func TestImports(t *testing.T) {
	for _, s := range sources(t) {
		r, ok := ruleOf(s.pkg)
		if !ok {
			t.Errorf("package %s has no rule: say in deps_test.go what it may import, and why", s.pkg)
			continue
		}
		for _, spec := range s.file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			at := s.fset.Position(spec.Pos())
			if why := reason(nowhere, imported); why != "" {
				t.Errorf("%s: %s is imported: %s", at, imported, why)
			}
			if s.isTest {
				continue
			}
			if !isStandard(imported) && !slices.Contains(r.may, strings.TrimPrefix(imported, module+"/")) {
				t.Errorf("%s: %s imports %s, which is against its rule: %s", at, s.pkg, imported, r.why)
			}
			if why := reason(testOnly, imported); why != "" && !slices.Contains(testPackages, s.pkg) {
				t.Errorf("%s: %s imports %s outside _test files: %s", at, s.pkg, imported, why)
			}
		}
	}
}

// A sleep ends neither with a context nor with Close, and hides what is waited
// for: production code waits in a select.
func TestNoSleep(t *testing.T) {
	for _, s := range sources(t) {
		if s.isTest || slices.Contains(testPackages, s.pkg) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sleep" {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" {
					t.Errorf("%s: time.Sleep ends neither with a context nor with Close: wait in a select", s.fset.Position(n.Pos()))
				}
			}
			return true
		})
	}
}

// ruleOf returns the rule of a package.
func ruleOf(name string) (rule, bool) {
	if r, ok := rules[name]; ok {
		return r, true
	}
	for dir := name; dir != "."; dir = path.Dir(dir) { // the nearest wins
		if r, ok := rules[dir+"/..."]; ok {
			return r, true
		}
	}
	return rule{}, false
}

// reason is what a table has for an import path, or for one above it.
func reason(table map[string]string, imported string) string {
	for p := imported; p != "."; p = path.Dir(p) {
		if why, ok := table[p]; ok {
			return why
		}
	}
	return ""
}

// isStandard reports whether an import is of the standard library, whose first path
// element has no dot.
func isStandard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}
