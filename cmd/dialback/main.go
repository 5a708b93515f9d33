// Command dialback runs a relay, a host, or a client of one.
//
//	dialback serve   --listen 127.0.0.1:8080 [--token T]
//	dialback host    --relay URL --id ID --to [NAME=]tcp://127.0.0.1:22|http://127.0.0.1:3000 ... [--token T]
//	dialback connect --relay URL --id ID [--service NAME] [--token T]
//	dialback status  --relay URL --id ID [--json] [--token T]
//
// Each flag may come from a variable: --relay from DIALBACK_RELAY, and so on.
// Exit codes: 0 done, 1 failed, 2 usage.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

const usage = `usage: dialback COMMAND [flags]

  serve    run a relay
  host     keep this machine reachable through a relay
  connect  reach a service of a host: standard input and output are the stream
  status   tell whether a host is online

dialback COMMAND --help tells a command's flags; each may also come from a
variable, --relay from DIALBACK_RELAY. Exit codes: 0 done, 1 failed, 2 usage.
`

// errUsage is an error of the command line: exit code 2.
var errUsage = errors.New("usage")

var commands = map[string]func(ctx context.Context, args []string) error{
	"serve": serve, "host": host, "connect": connect, "status": status,
}

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if len(args) == 0 || commands[args[0]] == nil {
		if len(args) > 0 && (args[0] == "help" || args[0] == "--help" || args[0] == "-h") {
			fmt.Print(usage)
			return 0
		}
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	defer stop()
	err := commands[args[0]](ctx, args[1:])
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprintf(os.Stderr, "dialback %s: %v\n", args[0], err)
		return 2
	}
	fmt.Fprintf(os.Stderr, "dialback %s: %v\n", args[0], err)
	return 1
}

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
