package agent_test

import (
	"math"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/transport"
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

// Any duration may be as long as a Duration can be: the agent serves, opens a
// stream once, and does not hammer a relay that it cannot reach.
func TestNew_DurationsWithoutEnd(t *testing.T) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[agent.Config]()) {
		if f.Type != reflect.TypeFor[time.Duration]() {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testNewDurationsWithoutEnd(t, f) })
		})
	}
}
func testNewDurationsWithoutEnd(t *testing.T, f reflect.StructField) {
	r := newFakeRelay(t)
	r.pongs = true
	cfg := r.config()
	reflect.ValueOf(&cfg).Elem().FieldByIndex(f.Index).SetInt(math.MaxInt64)
	a := run(t, cfg)
	c := r.next(1)
	s := c.spare("t1")
	time.Sleep(time.Minute)
	s.open(transport.StreamOpen{Stream: "a"}, "bytes")
	s.wantFrame(transport.Opened{})
	s.wantMessage("bytes")
	c.dial(transport.StreamDial{Ticket: "t2", Stream: "a"})
	c.want(transport.Refuse{Ticket: "t2", Status: 503, Reason: transport.ReasonAlreadyOpen})
	time.Sleep(time.Hour)
	s.write("still here")
	s.wantMessage("still here")
	if n := a.Stats().Connects; n != 1 {
		t.Errorf("%d attempts in an hour, want 1", n)
	}
	var attempts, status atomic.Int32
	r.refuseWith(func(w http.ResponseWriter, req *http.Request) bool {
		if attempts.Add(1) > 1000 {
			<-req.Context().Done() // a clock that stands still would hang the test
		}
		w.WriteHeader(int(status.Load()))
		return true
	})
	status.Store(502)
	c.CloseNow()
	for _, next := range []int32{403, 0} {
		time.Sleep(10 * time.Minute)
		if n := attempts.Swap(0); n > 1000 {
			t.Errorf("more than 1000 attempts in 10 minutes at a relay that answers %d", status.Load())
		}
		status.Store(next)
	}
	_ = a.stop()
}
