//go:build linux

package clustertest

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/dialback/dialback/internal/proctest"
	"github.com/dialback/dialback/internal/tooltest"
)

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

// haproxy notices by itself which nodes are there.
type haproxy struct{ *proctest.HAProxy }

func startHAProxy(t *testing.T, network string, h hint) haproxy {
	t.Helper()
	return haproxy{proctest.StartHAProxy(t, network, bool(h))}
}

func (b haproxy) address() string { return b.URL }
func (b haproxy) takeOut(string)  {}
func (b haproxy) putIn(id string) { b.AwaitUp(id) }

// nginx is a real nginx.
type nginx struct {
	t    *testing.T
	url  string
	text string // its configuration with all nodes in
	conf string // the file
	p    *proctest.Process
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
	b.text = proctest.Configuration(t, "nginx.conf", network, bool(h), map[string]string{"listen 80;": "listen " + network + "11:8080;"})
	proctest.WriteFile(t, b.conf, b.text)
	conf := proctest.WriteFile(t, filepath.Join(dir, "nginx.conf"), fmt.Sprintf(nginxMain, dir, user))
	// Its workers outlive a master that is killed, not one that is terminated.
	cmd := exec.Command(path, "-e", "stderr", "-p", dir, "-c", conf)
	proctest.EndWithParent(cmd, syscall.SIGTERM)
	b.p = proctest.Start(t, cmd)
	t.Cleanup(func() {
		if !b.p.HasEnded() {
			b.p.Terminate()
		}
		if t.Failed() {
			t.Logf("nginx:\n%s", b.p.Output())
		}
	})
	proctest.Within(t, proctest.Patience, "nginx serves", func() bool {
		if b.p.HasEnded() {
			t.Fatalf("nginx has ended\n%s", b.p.Output())
		}
		resp, err := proctest.Client.Get(b.url + "/health")
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
	before := strings.Count(b.p.Output(), "start worker process ")
	proctest.WriteFile(b.t, b.conf, text)
	b.p.Signal(syscall.SIGHUP)
	proctest.Within(b.t, proctest.Patience, "nginx has new workers", func() bool {
		return strings.Count(b.p.Output(), "start worker process ") > before
	})
}
