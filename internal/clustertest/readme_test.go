//go:build linux

package clustertest

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// What the README quotes of a configuration is in the file that the tests run,
// to the letter.
func TestReadme_QuotesTheConfigurations(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for language, name := range map[string]string{"haproxy": "haproxy.cfg", "nginx": "nginx.conf"} {
		conf, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		quotes := regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
		if len(quotes) == 0 {
			t.Errorf("README.md quotes nothing of %s: this test has nothing to test", name)
		}
		for _, quote := range quotes {
			if !strings.Contains(string(conf), quote[1]) {
				t.Errorf("README.md quotes what %s does not have:\n%s", name, quote[1])
			}
		}
	}
}
