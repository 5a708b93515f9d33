package agent

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// tokenSource calls the embedder's Token func, which may hang, panic or end its
// goroutine. It lets one call at most be in flight, however many attempts give
// up on it.
type tokenSource struct {
	// Immutable.
	mint    func(context.Context) (string, error)
	timeout time.Duration

	// pending is closed when an abandoned call has returned at last. Owned by
	// the goroutine that calls get.
	pending chan struct{}
}

var errTokenExited = errors.New("the Token func ended its goroutine")

type tokenResult struct {
	token string
	err   error
}

// get mints a token within the timeout. The error wraps ErrToken.
func (s *tokenSource) get(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if s.pending != nil {
		// What the abandoned call brings is too old to use.
		select {
		case <-s.pending:
			s.pending = nil
		case <-ctx.Done():
			return "", fmt.Errorf("%w: an earlier call has not returned", ErrToken)
		}
	}
	result := make(chan tokenResult, 1)
	returned := make(chan struct{})
	go s.call(ctx, result, returned)
	select {
	case r := <-result:
		if r.err != nil {
			return "", fmt.Errorf("%w: %w", ErrToken, r.err)
		}
		return r.token, nil
	case <-ctx.Done():
		s.pending = returned
		return "", fmt.Errorf("%w: %w", ErrToken, context.Cause(ctx))
	}
}

// call runs one call of the Token func; result has room for one.
func (s *tokenSource) call(ctx context.Context, result chan<- tokenResult, returned chan<- struct{}) {
	defer close(returned)
	r := tokenResult{err: errTokenExited} // unless mint returns
	defer func() {
		if p := recover(); p != nil {
			r = tokenResult{err: fmt.Errorf("panic: %v", p)}
		}
		result <- r
	}()
	r.token, r.err = s.mint(ctx)
}
