package main

import (
	"context"
	"errors"
	"fmt"
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
			s[name] = agent.ForwardTCP(rest)
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
	relayURL := f.String("relay", "", "the relay's `URL`")
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
	if len(to) == 0 {
		return fmt.Errorf("%w: --to is required", errUsage)
	}
	cfg := agent.Config{RelayURL: *relayURL, HostID: *id, Services: to, Logger: log, Hooks: agent.Hooks{
		Online:  func(o agent.Online) { fmt.Printf("online: %s at node %s\n", *id, o.Node) },
		Offline: func(err error) { fmt.Printf("offline: %v\n", err) },
		Retry: func(err error, in time.Duration) {
			log.Info("connecting again", "in", in.String(), "reason", fmt.Sprint(err))
		},
		Replaced: func(d time.Duration) {
			fmt.Printf("replaced: another process uses the id %s; staying away for %v\n", *id, d)
		},
	}}
	if *f.token != "" {
		token := *f.token
		cfg.Token = func(context.Context) (string, error) { return token, nil }
	}
	a, err := agent.New(cfg)
	if err != nil {
		return fmt.Errorf("%w: %v", errUsage, err)
	}
	if err := a.Run(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
