//go:build linux

package chaos

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/internal/proctest"
)

// member is a host: one process of it at nearly all times, sometimes two.
type member struct {
	// Immutable after newMember.
	w    *world
	id   string
	roll roll
	v2   bool
	proc bool // its processes are those of dialback host

	// For the test's goroutine.
	instances int
	now       *instance // the newest

	mu      sync.Mutex
	sockets int // control sockets of protocol 2 so far
}

// instance is one process of a host.
type instance struct {
	gate *proctest.Gate    // between it and the balancer
	stop func()            // ends it without a farewell, and waits; may be called twice
	p    *proctest.Process // if it is one of its own
}

// start starts another process of the host. The one before goes on.
func (m *member) start() {
	m.w.t.Helper()
	m.instances++
	in := &instance{gate: proctest.NewGate(m.w.t, "127.0.0.1:0", "tcp", strings.TrimPrefix(m.w.balancer.URL, "http://"))}
	s := service{m.w, identity{m.id, m.instances, 0}}
	switch {
	case m.v2:
		m.startV2(in, m.instances)
	case m.proc:
		m.startProcess(in, s)
	default:
		m.startAgent(in, s)
	}
	m.now = in
	m.w.t.Cleanup(in.stop)
}

// stopper makes the stop of an instance in the test's process: its connections
// are cut before it can say goodbye.
func stopper(in *instance, cancel context.CancelFunc, wait func()) func() {
	return sync.OnceFunc(func() {
		in.gate.SetCut(true)
		cancel()
		wait()
	})
}

func (m *member) startAgent(in *instance, s service) {
	m.w.t.Helper()
	a, err := agent.New(agent.Config{
		RelayURL: "http://" + in.gate.Addr, HostID: m.id, HeartbeatInterval: heartbeat, SilenceTimeout: silence,
		Services: map[string]agent.Handler{
			"":     agent.ForwardHTTP(s.listen(m.w.t)),
			"echo": agent.Raw(func(_ context.Context, st *agent.Stream) { defer st.Close(); s.echoBytes(st) }),
		},
		Hooks: agent.Hooks{Online: func(agent.Online) { m.roll.confirm(s.id) }},
	})
	if err != nil {
		m.w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		_ = a.Run(ctx) // its error is ctx's
	}()
	in.stop = stopper(in, cancel, func() { <-ran })
}

// startProcess starts dialback host.
func (m *member) startProcess(in *instance, s service) {
	m.w.t.Helper()
	echo := proctest.Serve(m.w.t, func(c *net.TCPConn) { s.echoBytes(c) })
	cmd := exec.Command(proctest.Program, "host", "--relay", "http://"+in.gate.Addr, "--id", m.id,
		"--to", s.listen(m.w.t), "--to", "echo=tcp://"+echo, "--to", "ssh=tcp://"+m.w.sshd.Addr)
	in.p = proctest.Start(m.w.t, cmd)
	read := make(chan struct{})
	go func() {
		defer close(read)
		for l := range in.p.Stdout.Lines() {
			if strings.HasPrefix(l, "online: ") {
				m.roll.confirm(s.id)
			}
		}
	}()
	in.stop = func() {
		in.p.Kill()
		<-read
	}
}

// nextSocket numbers the control sockets of protocol 2.
func (m *member) nextSocket() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sockets++
	return m.sockets
}

func (m *member) String() string {
	switch {
	case m.v2:
		return m.id + " (protocol 2)"
	case m.proc:
		return m.id + " (dialback host)"
	}
	return m.id + " (agent)"
}

var _ fmt.Stringer = (*member)(nil)
