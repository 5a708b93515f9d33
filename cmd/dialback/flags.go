package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strings"
)

// flags is a command's flag set with what all commands share.
type flags struct {
	*flag.FlagSet
	token    *string
	logLevel *string
}

func newFlags(name string) *flags {
	f := &flags{FlagSet: flag.NewFlagSet("dialback "+name, flag.ContinueOnError)}
	f.token = f.String("token", "", "the shared `credential`")
	f.logLevel = f.String("log-level", "warn", "debug, info, warn or error; to standard error")
	return f
}

// parse reads args, then the variables of flags that args did not set. A usage
// error has been printed when it returns.
func (f *flags) parse(args []string) (*slog.Logger, error) {
	f.SetOutput(io.Discard)
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			f.SetOutput(os.Stdout)
			f.PrintDefaults()
			return nil, err
		}
		return nil, fmt.Errorf("%w: %v", errUsage, err)
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("%w: unexpected argument %q", errUsage, f.Arg(0))
	}
	set := map[string]bool{}
	f.Visit(func(fl *flag.Flag) { set[fl.Name] = true })
	var bad error
	f.VisitAll(func(fl *flag.Flag) {
		name := "DIALBACK_" + strings.ToUpper(strings.ReplaceAll(fl.Name, "-", "_"))
		if v := os.Getenv(name); v != "" && !set[fl.Name] {
			if err := fl.Value.Set(v); err != nil {
				bad = fmt.Errorf("%w: %s: %v", errUsage, name, err)
			}
		}
	})
	if bad != nil {
		return nil, bad
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(*f.logLevel)); err != nil {
		return nil, fmt.Errorf("%w: --log-level: %v", errUsage, err)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})), nil
}

// required is a usage error for flags that are missing.
func (f *flags) required(names ...string) error {
	for _, n := range names {
		if f.Lookup(n).Value.String() == "" {
			return fmt.Errorf("%w: --%s is required", errUsage, n)
		}
	}
	return nil
}

// relayBase is --relay without a slash at its end. It has neither a query, as
// paths are put behind it, nor a password, as errors show it.
func (f *flags) relayBase() (string, error) {
	u, err := url.Parse(f.Lookup("relay").Value.String())
	if err == nil {
		switch u.Scheme {
		case "ws", "wss", "http", "https":
			if u.Host != "" && u.User == nil && u.RawQuery == "" && !u.ForceQuery && u.Fragment == "" {
				return u.Scheme + "://" + u.Host + strings.TrimRight(u.EscapedPath(), "/"), nil
			}
		}
	}
	// Not quoted: it may hold a password.
	return "", fmt.Errorf("%w: --relay: want ws, wss, http or https://HOST[:PORT][/PATH] and no more", errUsage)
}
