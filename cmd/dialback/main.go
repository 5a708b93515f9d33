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
	"os"
	"os/signal"
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
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go cancelOnSignal(signals, cancel)
	err := commands[args[0]](ctx, args[1:])
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintln(os.Stderr, printable(fmt.Sprintf("dialback %s: %v", args[0], err)))
	if errors.Is(err, errUsage) {
		return 2
	}
	return 1
}

// outliveReaders keeps a process that nobody reads from any more: by itself, Go
// ends it at its next line of output. It is for what serves others. connect and
// status are filters, which end so as others do.
func outliveReaders() { signal.Ignore(syscall.SIGPIPE) }

// cancelOnSignal calls cancel at the first signal. Whoever sees cancel's effect
// may rely on it that a second signal ends the process at once.
func cancelOnSignal(signals chan os.Signal, cancel context.CancelFunc) {
	<-signals
	signal.Stop(signals)
	cancel()
}
