package sim

import (
	"context"
	"errors"
	"net"
	"sync"
)

// errDead is what a process gets that has crashed; nobody hears of it.
var errDead = errors.New("sim: the process has crashed")

// process is one process of a node, a host or the clients. All that it does to
// the outside passes its gate.
type process struct {
	// Immutable after newProcess.
	name  string // of the actor: n0, h1, c
	label string // of this process: n0#2
	w     *World

	// Guarded by mu. Never held while waiting.
	mu       sync.Mutex
	resume   chan struct{} // not nil while stopped; closed when it goes on
	dead     bool
	late     bool     // calls of the Store that time out while stopped are made later all the same
	onResume []func() // what waits to be done
}

func newProcess(w *World, name, label string) *process {
	return &process{w: w, name: name, label: label}
}

// stop holds up all that the process does to the outside.
func (p *process) stop(late bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.resume == nil && !p.dead {
		p.resume = make(chan struct{})
		p.late = late
	}
}

// goOn ends a stop.
func (p *process) goOn() {
	p.mu.Lock()
	todo := p.onResume
	p.onResume = nil
	if p.resume != nil {
		close(p.resume)
		p.resume = nil
	}
	p.mu.Unlock()
	for _, f := range todo {
		f()
	}
}

// kill ends the process: nothing that it does reaches anybody any more.
func (p *process) kill() {
	p.mu.Lock()
	p.dead = true
	p.onResume = nil
	if p.resume != nil {
		close(p.resume)
		p.resume = nil
	}
	p.mu.Unlock()
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// gate returns a channel that is closed when the process goes on, nil while it
// runs.
func (p *process) gate() (resume <-chan struct{}, dead bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.resume, p.dead
}

// pass waits while the process is stopped, or until closed is closed.
func (p *process) pass(closed <-chan struct{}) error {
	for {
		resume, dead := p.gate()
		switch {
		case dead:
			return errDead
		case resume == nil:
			return nil
		}
		select {
		case <-resume:
		case <-closed:
			return net.ErrClosed
		}
	}
}

// passCall is pass for a call of the Store, which a stop outlasts. It returns
// the context with which to make the call: if ctx has ended meanwhile, none, or
// one that has not, for a call that had left the process before it was stopped.
func (p *process) passCall(ctx context.Context) (context.Context, error) {
	if err := p.pass(nil); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		p.mu.Lock()
		late := p.late
		p.mu.Unlock()
		if !late {
			return nil, err
		}
		return context.WithoutCancel(ctx), nil
	}
	return ctx, nil
}

// whenRunning does f now, or when the process goes on; never if it is dead.
func (p *process) whenRunning(f func()) {
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return
	}
	if p.resume != nil {
		p.onResume = append(p.onResume, f)
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	f()
}
