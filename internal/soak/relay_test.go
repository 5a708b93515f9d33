//go:build linux

package soak

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dialback/dialback/internal/proctest"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/store/redis"
)

// poolIdle is how long the relay keeps idle streams: less than by default, so
// that it is soon at rest.
const poolIdle = 5 * time.Second

// runRelay is the process of the relay. It prints its address, then answers each
// line of standard input with a usage, until there is none.
func runRelay(storeURL string) error {
	if _, err := fileLimit(); err != nil {
		return err
	}
	stalls, stop := proctest.NewStalls()
	defer stop()
	client, err := redis.Open(storeURL)
	if err != nil {
		return err
	}
	defer client.Close()
	srv, err := relay.New(relay.Config{
		Store: redis.New(client, nil), AuthorizeHost: relay.AllowAll, AuthorizeClient: relay.AllowAll, PoolIdle: poolIdle,
	})
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	hs := &http.Server{Handler: srv}
	served := make(chan error, 1)
	go func() { served <- hs.Serve(ln) }()
	fmt.Println(ln.Addr())
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for in.Scan() {
		if err := out.Encode(takeUsage(srv, stalls)); err != nil {
			return err
		}
	}
	_ = srv.Close()
	_ = hs.Close()
	<-served
	return in.Err()
}

// usage is what the relay's process has, at one moment.
type usage struct {
	Goroutines int
	Files      int
	Heap       uint64 // bytes that live after a collection
	Stacks     uint64 // bytes
	RSS        uint64 // bytes
	Stats      relay.Stats
	Stalls     []proctest.Pause // of this process, all of them
}

func takeUsage(srv *relay.Server, stalls *proctest.Stalls) usage {
	// The first collection empties sync.Pools, the second one frees what was in
	// them.
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u := usage{Goroutines: runtime.NumGoroutine(), Heap: m.HeapAlloc, Stacks: m.StackInuse, Stats: srv.Stats(), Stalls: stalls.All()}
	if names, err := os.ReadDir("/proc/self/fd"); err == nil {
		u.Files = len(names) - 1 // one is for reading the directory
	}
	if statm, err := os.ReadFile("/proc/self/statm"); err == nil {
		if fields := strings.Fields(string(statm)); len(fields) > 1 {
			pages, _ := strconv.ParseUint(fields[1], 10, 64)
			u.RSS = pages * uint64(os.Getpagesize())
		}
	}
	return u
}

// relayProcess is the other end of runRelay.
type relayProcess struct {
	t    *testing.T
	p    *proctest.Process
	addr string
}

func startRelay(t *testing.T, storeURL string) *relayProcess {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), relayEnv+"="+storeURL)
	r := &relayProcess{t: t, p: proctest.Start(t, cmd)}
	r.addr = r.p.Line()
	return r
}

func (r *relayProcess) usage() usage {
	r.t.Helper()
	r.p.Write("usage\n")
	var u usage
	if line := r.p.Line(); json.Unmarshal([]byte(line), &u) != nil {
		r.t.Fatalf("the relay says %q of its usage\n%s", line, r.p.Stderr)
	}
	return u
}
