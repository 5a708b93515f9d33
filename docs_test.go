package dialback_test

import (
	"go/ast"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/relaytest"
)

// documents are the texts beside the code.
var documents = []string{"README.md", "ARCHITECTURE.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "PROTOCOL.md"}

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// What the README says of relaytest.
func TestReadme_Relaytest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		middleware := func(h http.Handler) http.Handler { return h }
		services := map[string]agent.Handler{"": agent.HTTP(http.NotFoundHandler())}

		s := relaytest.NewServer(t, &relaytest.Options{Wrap: middleware})
		s.StartAgent("laptop", services, nil)
		resp, body, err := s.Do("GET", "/hosts/laptop/", nil)
		if err != nil || resp.StatusCode != http.StatusNotFound || resp.Header.Get("Dialback-Error") != "" {
			t.Errorf("%v, %q, %v, want the host's own 404", resp, body, err)
		}
	})
}

// Each line of Go in the README is a line of code that is compiled and run.
func TestReadme_CodeIsCompiled(t *testing.T) {
	compiled := make(map[string]bool)
	for _, name := range []string{"relay/example_test.go", "store/storetest/example_test.go", "docs_test.go"} {
		for line := range strings.Lines(readFile(t, name)) {
			compiled[strings.TrimSpace(line)] = true
		}
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(readFile(t, "README.md"), -1)
	if len(blocks) == 0 {
		t.Fatal("the README has no Go: this test has nothing to test")
	}
	for _, block := range blocks {
		for line := range strings.Lines(block[1]) {
			if line = strings.TrimSpace(line); line != "" && !compiled[line] {
				t.Errorf("README.md has a line of Go that no example has: %s", line)
			}
		}
	}
}

// The README knows every field of relay.Config.
func TestReadme_NamesEveryField(t *testing.T) {
	readme := readFile(t, "README.md")
	for _, f := range reflect.VisibleFields(reflect.TypeFor[relay.Config]()) {
		if !strings.Contains(readme, "`"+f.Name+"`") {
			t.Errorf("README.md does not name relay.Config.%s: what is its default, and what does it bound?", f.Name)
		}
	}
}

// A text that proves a claim by a test names one that exists.
func TestDocs_TestsExist(t *testing.T) {
	tests := make(map[string]bool)
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.isTest {
				tests[f.Name.Name] = true
			}
		}
	}
	for _, doc := range documents {
		for _, name := range regexp.MustCompile(`\b(Test|Fuzz|Benchmark)[A-Z]\w*`).FindAllString(readFile(t, doc), -1) {
			if !tests[name] {
				t.Errorf("%s names %s, which does not exist", doc, name)
			}
		}
	}
}

// A relative link leads to a file.
func TestDocs_LinksLeadSomewhere(t *testing.T) {
	for _, doc := range documents {
		for _, m := range regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`).FindAllStringSubmatch(readFile(t, doc), -1) {
			if _, err := os.Stat(filepath.FromSlash(m[1])); err != nil {
				t.Errorf("%s links to %s, which does not exist", doc, m[1])
			}
		}
	}
}
