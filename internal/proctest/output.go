package proctest

import (
	"bytes"
	"sync"
)

// maxLines is how many lines of an Output may wait; those after them are in
// String only.
const maxLines = 1024

// Output collects what a process prints, and splits it into lines. It never
// blocks the process.
type Output struct {
	lines chan string // sent to by Write, without blocking; closed by close

	mu   sync.Mutex
	all  bytes.Buffer
	line int // where in all the line begins that is not complete yet
}

func newOutput() *Output { return &Output{lines: make(chan string, maxLines)} }

// Write is for the process.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all.Write(p)
	for {
		rest := o.all.Bytes()[o.line:]
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			return len(p), nil
		}
		o.sendLocked(string(rest[:i]))
		o.line += i + 1
	}
}

func (o *Output) sendLocked(line string) {
	select {
	case o.lines <- line:
	default: // nobody has read for long
	}
}

// close ends the output; a last line may lack its end.
func (o *Output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if rest := o.all.Bytes()[o.line:]; len(rest) > 0 {
		o.sendLocked(string(rest))
	}
	close(o.lines)
}

// Lines receives the lines without their ends. It is closed when the process
// has ended.
func (o *Output) Lines() <-chan string { return o.lines }

// String is all that was printed so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}
