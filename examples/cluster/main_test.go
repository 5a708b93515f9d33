package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"regexp"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/dialback/dialback/internal/tooltest"
)

// The nodes of a test are this test's binary.
func TestMain(m *testing.M) {
	if isNode() {
		main()
	}
	goredis.SetLogger(silence{})
	goleak.VerifyTestMain(m)
}

func TestTour(t *testing.T) {
	tooltest.Need(t, "redis-server", "apt-get install redis-server")
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	const allWell = `\n   \d+ calls, none failed\. The slowest took`
	// In this order.
	rest := out.String()
	for _, want := range []string{
		`1\. Three relay nodes`, `node a: pid \d+, http://127\.0\.0\.1:\d+\n`, `node b: `, `node c: `, `A balancer at http://127\.0\.0\.1:\d+ `,
		`2\. Six hosts`, `node a holds host-1, host-4\n`, `node b holds host-2, host-5\n`, `node c holds host-3, host-6\n`,
		`3\. `, `node a -> 200 OK: "Hello from host-1"\n`, `node b -> 200 OK: "Hello from host-1"\n`, `node c -> 200 OK: "Hello from host-1"\n`,
		`4\. Clients call all hosts`, allWell,
		`5\. .* node b is killed`, `\n   \d+ calls, (none|\d+) failed`,
		`ms  host-2 went from node b to node [ac]\n`, `ms  host-5 went from node b to node [ac]\n`,
		`6\. Node b starts again`, `node b: pid \d+, http://127\.0\.0\.1:\d+, is known`, `node b holds no host\n`, `\n   \d+ calls, (none|\d+) failed`,
		`7\. Redis is stopped`, allWell,
		`node a -> 200 OK: "Hello from host-1"\n`, `node b -> 503 Service Unavailable: store_unavailable, `, `node c -> 503 Service Unavailable: store_unavailable, `,
		`8\. Redis starts again`, `node a holds host-1, `, `node b holds no host\n`, `node c holds host-`, allWell,
		`That is all\.`,
	} {
		at := regexp.MustCompile(want).FindStringIndex(rest)
		if at == nil {
			t.Fatalf("the tour does not say %q where it should:\n%s", want, &out)
		}
		rest = rest[at[1]:]
	}
}

func TestTour_Interrupted(t *testing.T) {
	tooltest.Need(t, "redis-server", "apt-get install redis-server")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, io.Discard); err == nil {
		t.Error("a tour that was interrupted ended without an error")
	}
}

func TestTour_WithoutRedis(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := run(t.Context(), os.Stderr); !errors.Is(err, errNoRedis) {
		t.Errorf("without redis-server: %v, want to be told what to install", err)
	}
}
