package agent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dialback/dialback/agent"
)

func TestNew_ConfigErrors(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*agent.Config)
		want   string // in the error; empty means none
	}{
		{"good", func(*agent.Config) {}, ""},
		{"path and slash", func(c *agent.Config) { c.RelayURL = "https://r.example:8443/a%2Fb/" }, ""},
		{"no relay", func(c *agent.Config) { c.RelayURL = "" }, "RelayURL"},
		{"not a URL", func(c *agent.Config) { c.RelayURL = "http://[" }, "RelayURL"},
		{"scheme", func(c *agent.Config) { c.RelayURL = "ftp://r" }, "RelayURL"},
		{"no host", func(c *agent.Config) { c.RelayURL = "ws:///x" }, "RelayURL"},
		{"credentials in the URL", func(c *agent.Config) { c.RelayURL = "ws://me:pass@r" }, "RelayURL"},
		{"query", func(c *agent.Config) { c.RelayURL = "ws://r/?token=s" }, "RelayURL"},
		{"no host ID", func(c *agent.Config) { c.HostID = "" }, "HostID"},
		{"dots", func(c *agent.Config) { c.HostID = ".." }, "HostID"},
		{"slash", func(c *agent.Config) { c.HostID = "a/b" }, "HostID"},
		{"long", func(c *agent.Config) { c.HostID = strings.Repeat("a", 129) }, "HostID"},
		{"all that is allowed", func(c *agent.Config) { c.HostID = "AZaz09._:@~-" }, ""},
		{"no service", func(c *agent.Config) { c.Services = nil }, "Services"},
		{"nil handler", func(c *agent.Config) { c.Services["x"] = nil }, `Services["x"]`},
		{"nil raw", func(c *agent.Config) { c.Services["x"] = agent.Raw(nil) }, `Services["x"]`},
		{"nil http", func(c *agent.Config) { c.Services["x"] = agent.HTTP(nil) }, `Services["x"]`},
		{"tcp with a path", func(c *agent.Config) { c.Services["x"] = agent.ForwardTCP("localhost:22/") }, `Services["x"]`},
		{"tcp without a port", func(c *agent.Config) { c.Services["x"] = agent.ForwardTCP("localhost") }, `Services["x"]`},
		{"http scheme", func(c *agent.Config) { c.Services["x"] = agent.ForwardHTTP("tcp://h:1") }, `Services["x"]`},
		{"http without a host", func(c *agent.Config) { c.Services["x"] = agent.ForwardHTTP("http://:80") }, `Services["x"]`},
		{"http query", func(c *agent.Config) { c.Services["x"] = agent.ForwardHTTP("http://h/?a") }, `Services["x"]`},
		{"http not a URL", func(c *agent.Config) { c.Services["x"] = agent.ForwardHTTP("http://h:x") }, `Services["x"]`},
		{"negative duration", func(c *agent.Config) { c.TokenTimeout = -time.Second }, "TokenTimeout"},
		{"negative limit", func(c *agent.Config) { c.MaxStreams = -1 }, "MaxStreams"},
		{"silence below the interval", func(c *agent.Config) { c.SilenceTimeout = 30 * time.Second }, "SilenceTimeout"},
		{"long interval", func(c *agent.Config) { c.HeartbeatInterval = time.Hour }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := agent.Config{RelayURL: "wss://relay.example.com/relay", HostID: "host-1",
				Services: map[string]agent.Handler{"": agent.ForwardTCP("127.0.0.1:22"), "web": agent.ForwardHTTP("http://127.0.0.1:3000/base")}}
			tt.change(&cfg)
			_, err := agent.New(cfg)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), "Config."+tt.want) {
				t.Errorf("New: %v, want an error about %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "pass") {
				t.Errorf("New: %v: it quotes the password", err)
			}
		})
	}
}

func TestListen_ServiceIsTaken(t *testing.T) {
	_, err := agent.Listen(t.Context(), agent.Config{RelayURL: "ws://r", HostID: "h", ListenService: "x",
		Services: map[string]agent.Handler{"x": agent.ForwardTCP("127.0.0.1:22")}})
	if err == nil || !strings.Contains(err.Error(), "ListenService") {
		t.Errorf("Listen: %v", err)
	}
}
