//go:build linux

package clustertest

import (
	"encoding/csv"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dialback/dialback/internal/tooltest"
)

// docs is where the configurations are that we recommend.
const docs = "../../docs/"

// balancer is a load balancer in front of the nodes of a network.
type balancer interface {
	// address is the URL at which it listens.
	address() string
	// takeOut ends new requests to a node before the node is ended, and putIn
	// begins them again after its start. putIn returns when it has.
	takeOut(id string)
	putIn(id string)
}

// hint says whether the configuration has the part that reads tickets.
type hint bool

const (
	hinted hint = true
	plain  hint = false
)

func (h hint) String() string {
	if h {
		return "hinted"
	}
	return "plain"
}

// balancers start each load balancer that is documented, for three nodes.
var balancers = map[string]func(t *testing.T, network string, h hint) balancer{
	"haproxy": func(t *testing.T, network string, h hint) balancer { return startHAProxy(t, network, h) },
	"nginx":   func(t *testing.T, network string, h hint) balancer { return startNginx(t, network, h) },
}

// hints is the part of a configuration that reads tickets.
var hints = regexp.MustCompile(`(?s)[ \t]*# hint: begin.*?# hint: end\n`)

// configuration reads one of our configurations, for the nodes of a network,
// with further replacements. Each of them must be there.
func configuration(t *testing.T, name, network string, h hint, replace map[string]string) string {
	t.Helper()
	b, err := os.ReadFile(docs + name)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	if !hints.MatchString(text) {
		t.Fatalf("%s has no part that reads tickets", name)
	}
	if !h {
		text = hints.ReplaceAllString(text, "")
	}
	for i := range 3 {
		if !strings.Contains(text, fmt.Sprintf("10.0.0.%d:8080", i+1)) {
			t.Fatalf("%s does not name node %d", name, i+1)
		}
	}
	text = strings.ReplaceAll(text, "10.0.0.", network)
	for from, to := range replace {
		if strings.Count(text, from) != 1 {
			t.Fatalf("%s has %q not once", name, from)
		}
		text = strings.Replace(text, from, to, 1)
	}
	return text
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// haproxy is a real HAProxy.
type haproxy struct {
	t     *testing.T
	url   string
	admin string // its socket for administration
}

func startHAProxy(t *testing.T, network string, h hint) *haproxy {
	t.Helper()
	path := tooltest.Need(t, "haproxy", "apt-get install haproxy")
	dir, err := os.MkdirTemp("", "haproxy-") // short enough for a socket's name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &haproxy{t: t, url: "http://" + network + "10:8080", admin: filepath.Join(dir, "admin.sock")}
	conf := configuration(t, "haproxy.cfg", network, h, map[string]string{
		"bind :80":                "bind " + network + "10:8080",
		"/run/haproxy/admin.sock": b.admin,
		"maxconn 100000":          "maxconn 1000", // what a test's limit of files allows
	})
	p := start(t, path, "-db", "-f", writeFile(t, filepath.Join(dir, "haproxy.cfg"), conf))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("haproxy:\n%s", p.out)
		}
	})
	for _, id := range []string{"node1", "node2", "node3"} {
		b.await(id, "UP", p)
	}
	return b
}

func (b *haproxy) address() string { return b.url }

// takeOut does nothing: it notices by itself.
func (b *haproxy) takeOut(string) {}

func (b *haproxy) putIn(id string) { b.await(id, "UP", nil) }

// await waits until HAProxy says that a node is in that state, by a check.
func (b *haproxy) await(id, state string, p *process) {
	b.t.Helper()
	within(b.t, patience, "HAProxy takes "+id+" for "+state, func() bool {
		if p != nil && p.hasEnded() {
			b.t.Fatalf("haproxy has ended\n%s", p.out)
		}
		s, checked := b.state(id)
		return s == state && checked
	})
}

// state asks HAProxy for the state of a node, and whether a check has said so.
func (b *haproxy) state(id string) (state string, checked bool) {
	conn, err := net.Dial("unix", b.admin)
	if err != nil {
		return "", false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, "show stat\n"); err != nil {
		return "", false
	}
	rows, err := csv.NewReader(conn).ReadAll()
	if err != nil || len(rows) == 0 {
		return "", false
	}
	column := make(map[string]int)
	for i, name := range rows[0] {
		column[strings.TrimPrefix(name, "# ")] = i
	}
	for _, row := range rows[1:] {
		if row[column["pxname"]] == "relay" && row[column["svname"]] == id {
			// A star before it says that the next check is under way.
			return row[column["status"]], strings.HasSuffix(row[column["check_status"]], "L7OK")
		}
	}
	return "", false
}

// nginx is a real nginx.
type nginx struct {
	t    *testing.T
	url  string
	text string // its configuration with all nodes in
	conf string // the file
	p    *process
}

// nginxMain is what surrounds a file of conf.d.
const nginxMain = `
daemon off;
%[2]s
worker_processes 1;
pid %[1]s/nginx.pid;
error_log stderr notice;
events { worker_connections 1024; }
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	include %[1]s/dialback.conf;
}
`

func startNginx(t *testing.T, network string, h hint) *nginx {
	t.Helper()
	path := tooltest.Need(t, "nginx", "apt-get install nginx")
	dir := t.TempDir()
	user := ""
	if os.Getuid() == 0 {
		user = "user root;" // else its workers cannot enter dir
	}
	b := &nginx{t: t, url: "http://" + network + "11:8080", conf: filepath.Join(dir, "dialback.conf")}
	b.text = configuration(t, "nginx.conf", network, h, map[string]string{"listen 80;": "listen " + network + "11:8080;"})
	writeFile(t, b.conf, b.text)
	conf := writeFile(t, filepath.Join(dir, "nginx.conf"), fmt.Sprintf(nginxMain, dir, user))
	// Its workers outlive a master that is killed, not one that is terminated.
	b.p = startCmd(t, exec.Command(path, "-e", "stderr", "-p", dir, "-c", conf), syscall.SIGTERM)
	t.Cleanup(func() {
		if !b.p.hasEnded() {
			b.p.terminate()
		}
		if t.Failed() {
			t.Logf("nginx:\n%s", b.p.out)
		}
	})
	within(t, patience, "nginx serves", func() bool {
		if b.p.hasEnded() {
			t.Fatalf("nginx has ended\n%s", b.p.out)
		}
		resp, err := onceClient.Get(b.url + "/health")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return b
}

func (b *nginx) address() string { return b.url }

// takeOut marks a node as down, as the configuration says that one must.
func (b *nginx) takeOut(id string) {
	b.t.Helper()
	line := regexp.MustCompile(`(server [0-9.]+` + id[len("node"):] + `:8080) max_fails`)
	text := line.ReplaceAllString(b.text, "$1 down max_fails")
	if text == b.text {
		b.t.Fatalf("no line for %s in\n%s", id, b.text)
	}
	b.reload(text)
}

func (b *nginx) putIn(string) { b.reload(b.text) }

// reload makes new workers take over.
func (b *nginx) reload(text string) {
	b.t.Helper()
	before := strings.Count(b.p.out.String(), "start worker process ")
	writeFile(b.t, b.conf, text)
	b.p.signal(syscall.SIGHUP)
	within(b.t, patience, "nginx has new workers", func() bool {
		return strings.Count(b.p.out.String(), "start worker process ") > before
	})
}
