//go:build unix

package main_test

import (
	"strings"
	"testing"
)

// usageTest is a command line, what it ends with, and parts of what it prints.
type usageTest struct {
	name, args string
	env        []string
	code       int
	stdout     string
	stderr     string
}

func TestUsage(t *testing.T) {
	t.Parallel()
	tests := []usageTest{
		{name: "nothing", code: 2, stderr: "usage: dialback COMMAND"},
		{name: "unknown command", args: "listen", code: 2, stderr: "usage: dialback COMMAND"},
		{name: "help", args: "--help", stdout: "usage: dialback COMMAND"},
		{name: "help of a command", args: "connect --help", stdout: "-service"},
		{name: "unknown flag", args: "serve --port 1", code: 2, stderr: "-port"},
		{name: "stray argument", args: "serve 127.0.0.1:1", code: 2, stderr: "unexpected argument"},
		{name: "unknown store", args: "serve --store floppy", code: 2, stderr: "--store"},
		{name: "empty key", args: "serve --advertise http://127.0.0.1:1 --node-key-file /dev/null", code: 2, stderr: "--node-key-file: the file is empty"},
		{name: "no key", args: "serve --advertise http://127.0.0.1:1", code: 2, stderr: "--advertise needs --node-key-file"},
		{name: "bad level", args: "serve --log-level loud", code: 2, stderr: "--log-level"},
		{name: "no relay", args: "status --id h", code: 2, stderr: "--relay is required"},
		{name: "no id", args: "connect --relay http://127.0.0.1:1", code: 2, stderr: "--id is required"},
		{name: "no service", args: "host --relay http://127.0.0.1:1 --id h", code: 2, stderr: "--to is required"},
		{name: "service without a scheme", args: "host --relay http://127.0.0.1:1 --id h --to 127.0.0.1:22", code: 2, stderr: "tcp://HOST:PORT"},
		{name: "service without a port", args: "host --relay http://127.0.0.1:1 --id h --to tcp://127.0.0.1", code: 2, stderr: "host:port"},
		{name: "service with a path", args: "host --relay http://127.0.0.1:1 --id h --to tcp://127.0.0.1:22/path", code: 2, stderr: "host:port"},
		{name: "service twice", args: "host --relay http://127.0.0.1:1 --id h --to a=tcp://127.0.0.1:1 --to a=tcp://127.0.0.1:2", code: 2, stderr: "given twice"},
		{name: "bad host id", args: "host --relay http://127.0.0.1:1 --id a/b --to tcp://127.0.0.1:1", code: 2, stderr: "HostID"},
		{name: "bad variable", args: "status --relay http://127.0.0.1:1 --id h", env: []string{"DIALBACK_JSON=perhaps"}, code: 2, stderr: "DIALBACK_JSON"},
		{name: "flags from variables", args: "host", env: []string{"DIALBACK_RELAY=http://127.0.0.1:1", "DIALBACK_ID=h", "DIALBACK_TO=tcp://127.0.0.1:1,web=floppy://"}, code: 2, stderr: `"web=floppy://"`},
		{name: "a flag beats its variable", args: "serve --store floppy", env: []string{"DIALBACK_STORE=memory"}, code: 2, stderr: "--store"},
		{name: "no relay there", args: "status --relay http://127.0.0.1:1 --id h", code: 1, stderr: "refused"},
		{name: "no relay there", args: "connect --relay http://127.0.0.1:1 --id h", code: 1, stderr: "refused"},
		{name: "bad address", args: "serve --listen 127.0.0.1:99999", code: 1, stderr: "99999"},
	}
	// A relay's URL is scheme, host and path, for all who take one.
	for _, relay := range []string{"127.0.0.1:1", "ftp://127.0.0.1:1", "http://", "http://127.0.0.1:1/%zz", "http://127.0.0.1:1/?token=" + secret, "http://127.0.0.1:1/?", "http://user:" + secret + "@127.0.0.1:1", "http://127.0.0.1:1/#" + secret} {
		for _, command := range []string{"host --to tcp://127.0.0.1:1", "connect", "status"} {
			tests = append(tests, usageTest{name: "bad relay URL", args: command + " --id h --relay " + relay, code: 2, stderr: "--relay"})
		}
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := run(t, append(tt.env, "DIALBACK_TOKEN="+secret), "", strings.Fields(tt.args)...)
			if got.code != tt.code {
				t.Errorf("exit code %d, want %d", got.code, tt.code)
			}
			for _, o := range []struct{ name, got, want string }{{"stdout", got.stdout, tt.stdout}, {"stderr", got.stderr, tt.stderr}} {
				if !strings.Contains(o.got, o.want) || o.want == "" && o.got != "" {
					t.Errorf("%s is %q, want something with %q", o.name, o.got, o.want)
				}
				if strings.Contains(o.got, secret) {
					t.Errorf("%s has the token: %q", o.name, o.got)
				}
			}
			if strings.Contains(got.stderr, "\npanic") || strings.Contains(got.stderr, "goroutine ") {
				t.Errorf("panic: %s", got.stderr)
			}
		})
	}
}
