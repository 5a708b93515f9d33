package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/dialback/dialback/agent"
)

// services collects --to flags.
type services map[string]agent.Handler

func (s services) String() string { return "" }

// Set takes [NAME=]URL, or several with commas between, as from a variable.
func (s services) Set(v string) error {
	for to := range strings.SplitSeq(v, ",") {
		name, target := "", to
		if n, t, ok := strings.Cut(to, "="); ok && !strings.Contains(n, "://") {
			name, target = n, t
		}
		if _, dup := s[name]; dup {
			return fmt.Errorf("service %q is given twice", name)
		}
		switch scheme, rest, _ := strings.Cut(target, "://"); scheme {
		case "tcp":
			s[name] = agent.ForwardTCP(strings.TrimSuffix(rest, "/"))
		case "http", "https":
			s[name] = agent.ForwardHTTP(target)
		default:
			return fmt.Errorf("%q is not [NAME=]tcp://HOST:PORT or [NAME=]http://HOST:PORT", to)
		}
	}
	return nil
}

// host keeps this machine reachable until ctx ends.
func host(ctx context.Context, args []string) error {
	f := newFlags("host")
	f.String("relay", "", "the relay's `URL`")
	id := f.String("id", "", "this host's `name`")
	to := services{}
	f.Var(to, "to", "a `service`, again for each: [NAME=]tcp://HOST:PORT or [NAME=]http://HOST:PORT")
	log, err := f.parse(args)
	if err != nil {
		return err
	}
	if err := f.required("relay", "id"); err != nil {
		return err
	}
	base, err := f.relayBase()
	if err != nil {
		return err
	}
	if len(to) == 0 {
		return fmt.Errorf("%w: --to is required", errUsage)
	}
	cfg := agent.Config{RelayURL: base, HostID: *id, Services: to, Logger: log, Hooks: (&teller{out: os.Stdout, id: *id}).hooks()}
	if *f.token != "" {
		token := *f.token
		cfg.Token = func(context.Context) (string, error) { return token, nil }
	}
	a, err := agent.New(cfg)
	if err != nil {
		return fmt.Errorf("%w: %v", errUsage, err)
	}
	outliveReaders()
	if err := a.Run(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// teller prints one line for each change of a host's state. The agent calls it
// from one goroutine at a time.
type teller struct {
	out    io.Writer
	id     string
	online bool
	last   string // the line that was printed last
}

func (t *teller) hooks() agent.Hooks {
	return agent.Hooks{Online: t.isOnline, Offline: t.isOffline, Retry: t.failed, Replaced: t.replaced}
}

func (t *teller) isOnline(o agent.Online) {
	t.online = true
	t.tell(fmt.Sprintf("online: %s at node %s", t.id, o.Node))
}

func (t *teller) isOffline(err error) {
	t.online = false
	t.tell(fmt.Sprintf("offline: %v", reason(err)))
}

// failed is told of every attempt. While a relay drains, one for the successor
// of a socket that still serves is no news; else only a new reason is.
func (t *teller) failed(err error, _ time.Duration) {
	if !t.online {
		t.isOffline(err)
	}
}

func (t *teller) replaced(away time.Duration) {
	t.tell(fmt.Sprintf("replaced: another process uses the id %s; staying away for %v", t.id, away.Round(time.Second)))
}

func (t *teller) tell(line string) {
	line = printable(line)
	if line != t.last {
		t.last = line
		fmt.Fprintln(t.out, line)
	}
}
