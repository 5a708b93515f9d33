package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// maxBatch is how many scripts go in one pipeline. More gain nothing, and a
// pipeline occupies its connection until the last reply.
const maxBatch = 500

// command is one call of a script.
type command struct {
	script script
	keys   []string
	args   []any
}

// trip is one pipeline on its way. It has a goroutine of its own, because a
// client need not heed a context, and never heeds one that is canceled while it
// reads: the call returns in time, and the trip ends when the client's own
// timeouts end it.
type trip struct {
	// Immutable after trip.
	client   goredis.UniversalClient
	commands []command

	// Owned by run until done is closed, by the caller from then on.
	replies []any
	err     error

	done chan struct{} // closed by run
}

// do sends the commands, maxBatch at most, in one pipeline and returns their
// replies. An error of any of them is an error of all. what names the method.
func (s *Store) do(ctx context.Context, what string, commands ...command) ([]any, error) {
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	t := &trip{client: s.client, commands: commands, done: make(chan struct{})}
	go t.run(bounded)
	select {
	case <-t.done:
	case <-bounded.Done():
		return nil, s.outage(ctx, what, bounded.Err())
	}
	if t.err == nil {
		return t.replies, nil
	}
	if deadline, _ := bounded.Deadline(); !time.Now().Before(deadline) {
		// The client gave its connection the same deadline, and that ended
		// an instant before the context.
		<-bounded.Done()
		return nil, s.outage(ctx, what, bounded.Err())
	}
	return nil, s.outage(ctx, what, t.err)
}

// queueFunc adds a command to a pipeline.
type queueFunc func(context.Context, goredis.Pipeliner, command) *goredis.Cmd

func evalSHA(ctx context.Context, p goredis.Pipeliner, c command) *goredis.Cmd {
	return p.EvalSha(ctx, c.script.sha1, c.keys, c.args...)
}

func eval(ctx context.Context, p goredis.Pipeliner, c command) *goredis.Cmd {
	return p.Eval(ctx, c.script.source, c.keys, c.args...)
}

// outage returns the error of a trip that failed. It wraps a context's error
// only if that of the caller has ended.
func (s *Store) outage(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("redis: %s: %w", what, ctx.Err())
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("redis: %s: no answer within %v", what, s.timeout)
	}
	return fmt.Errorf("redis: %s: %w", what, err)
}

func (t *trip) run(ctx context.Context) {
	defer close(t.done)
	t.replies = make([]any, len(t.commands))
	all := make([]int, len(t.commands))
	for i := range all {
		all[i] = i
	}
	unknown, err := t.send(ctx, all, evalSHA)
	if err == nil && len(unknown) > 0 {
		// A server that does not know a script learns it from EVAL: it is the
		// right server in a Cluster as well, and needs no other to be up.
		unknown, err = t.send(ctx, unknown, eval)
		if err == nil && len(unknown) > 0 {
			err = errors.New("the server keeps no scripts")
		}
	}
	t.err = err
}

// send sends the commands with these indexes and keeps their replies. It
// returns the indexes of those whose script the server does not know.
func (t *trip) send(ctx context.Context, indexes []int, queue queueFunc) (unknown []int, err error) {
	p := t.client.Pipeline()
	sent := make([]*goredis.Cmd, len(indexes))
	for n, i := range indexes {
		sent[n] = queue(ctx, p, t.commands[i])
	}
	_, _ = p.Exec(ctx) // each command has its own error
	for n, i := range indexes {
		switch reply, err := sent[n].Result(); {
		case err == nil:
			t.replies[i] = reply
		case goredis.HasErrorPrefix(err, "NOSCRIPT"):
			unknown = append(unknown, i)
		default:
			return nil, err
		}
	}
	return unknown, nil
}
