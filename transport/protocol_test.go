package transport_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/dialback/dialback/transport"
)

// TestProtocol_ExamplesDecode keeps PROTOCOL.md honest: each block marked json
// is one frame that Decode knows, and all frames have one.
func TestProtocol_ExamplesDecode(t *testing.T) {
	doc, err := os.ReadFile("../PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[reflect.Type]bool)
	for i, part := range strings.Split(string(doc), "```json\n")[1:] {
		text, _, closed := strings.Cut(part, "```")
		if !closed {
			t.Fatalf("json block %d of PROTOCOL.md is not closed", i+1)
		}
		f, err := transport.Decode([]byte(text))
		if err != nil {
			t.Errorf("json block %d of PROTOCOL.md: %v\n%s", i+1, err, text)
			continue
		}
		seen[reflect.TypeOf(f)] = true
	}
	for _, c := range frames {
		if !seen[reflect.TypeOf(c.frame)] {
			t.Errorf("PROTOCOL.md has no example of %T", c.frame)
		}
	}
}
