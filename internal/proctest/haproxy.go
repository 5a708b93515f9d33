package proctest

import (
	"encoding/csv"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dialback/dialback/internal/tooltest"
)

// docs is where the configurations are that we recommend, seen from the
// directories of tests below internal.
const docs = "../../docs/"

// hints is the part of a configuration that reads tickets.
var hints = regexp.MustCompile(`(?s)[ \t]*# hint: begin.*?# hint: end\n`)

// Configuration reads one of our configurations of load balancers, for the nodes
// 1 to 3 of a network, with or without the part that reads tickets, and with
// further replacements. Each of them must be there once.
func Configuration(tb testing.TB, name, network string, hinted bool, replace map[string]string) string {
	tb.Helper()
	b, err := os.ReadFile(docs + name)
	if err != nil {
		tb.Fatal(err)
	}
	text := string(b)
	if !hints.MatchString(text) {
		tb.Fatalf("%s has no part that reads tickets", name)
	}
	if !hinted {
		text = hints.ReplaceAllString(text, "")
	}
	for i := range 3 {
		if !strings.Contains(text, fmt.Sprintf("10.0.0.%d:8080", i+1)) {
			tb.Fatalf("%s does not name node %d", name, i+1)
		}
	}
	text = strings.ReplaceAll(text, "10.0.0.", network)
	for from, to := range replace {
		if strings.Count(text, from) != 1 {
			tb.Fatalf("%s has %q not once", name, from)
		}
		text = strings.Replace(text, from, to, 1)
	}
	return text
}

// HAProxy is a real HAProxy in front of three nodes, with the configuration of
// docs/haproxy.cfg.
type HAProxy struct {
	URL string // where it listens

	tb    testing.TB
	p     *Process
	admin string // its socket for administration
}

// StartHAProxy starts it at address 10 of the network, for nodes that serve at
// port 8080 of the addresses 1 to 3, and returns when it takes all of them for
// up. Without HAProxy the test is skipped.
func StartHAProxy(tb testing.TB, network string, hinted bool) *HAProxy {
	tb.Helper()
	path := tooltest.Need(tb, "haproxy", "apt-get install haproxy")
	dir, err := os.MkdirTemp("", "haproxy-") // short enough for a socket's name
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &HAProxy{tb: tb, URL: "http://" + network + "10:8080", admin: filepath.Join(dir, "admin.sock")}
	conf := Configuration(tb, "haproxy.cfg", network, hinted, map[string]string{
		"bind :80":                "bind " + network + "10:8080",
		"/run/haproxy/admin.sock": b.admin,
		"maxconn 100000":          "maxconn 1000", // what a test's limit of files allows
	})
	b.p = Start(tb, exec.Command(path, "-db", "-f", WriteFile(tb, filepath.Join(dir, "haproxy.cfg"), conf)))
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("haproxy:\n%s", b.p.Output())
		}
	})
	for _, id := range []string{"node1", "node2", "node3"} {
		b.AwaitUp(id)
	}
	return b
}

// Stop ends it, with all its connections.
func (b *HAProxy) Stop() { b.p.Kill() }

// AwaitUp waits until HAProxy takes a node for up, by a check.
func (b *HAProxy) AwaitUp(id string) {
	b.tb.Helper()
	Within(b.tb, Patience, "HAProxy takes "+id+" for up", func() bool {
		if b.p.HasEnded() {
			b.tb.Fatalf("haproxy has ended\n%s", b.p.Output())
		}
		return b.IsUp(id)
	})
}

// IsUp asks HAProxy whether it takes a node for up, by a check.
func (b *HAProxy) IsUp(id string) bool {
	conn, err := net.Dial("unix", b.admin)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(Patience))
	if _, err := io.WriteString(conn, "show stat\n"); err != nil {
		return false
	}
	rows, err := csv.NewReader(conn).ReadAll()
	if err != nil || len(rows) == 0 {
		return false
	}
	column := make(map[string]int)
	for i, name := range rows[0] {
		column[strings.TrimPrefix(name, "# ")] = i
	}
	for _, row := range rows[1:] {
		if row[column["pxname"]] == "relay" && row[column["svname"]] == id {
			// A star before it says that the next check is under way.
			return row[column["status"]] == "UP" && strings.HasSuffix(row[column["check_status"]], "L7OK")
		}
	}
	return false
}
