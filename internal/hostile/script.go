package hostile

import (
	"bytes"
	"time"
)

// Step is one step of a script: what it means is the target's business.
type Step struct {
	Op  byte
	Arg []byte
}

// S makes a Step, for seeds.
func S(op byte, arg string) Step { return Step{op, []byte(arg)} }

// Script writes steps as the bytes that Steps reads: each is its Op, the length
// of its Arg in one byte, and the Arg. A longer Arg is cut off.
func Script(steps ...Step) []byte {
	var b []byte
	for _, s := range steps {
		arg := s.Arg[:min(len(s.Arg), 255)]
		b = append(b, s.Op, byte(len(arg)))
		b = append(b, arg...)
	}
	return b
}

// Steps reads any bytes as a script of most steps at most. The last Arg may be
// shorter than its length says.
func Steps(script []byte, most int) []Step {
	var steps []Step
	for len(script) >= 2 && len(steps) < most {
		n := min(int(script[1]), len(script)-2)
		steps = append(steps, Step{script[0], script[2 : 2+n]})
		script = script[2+n:]
	}
	return steps
}

// First returns the first byte of the Arg, or zero.
func (s Step) First() byte {
	if len(s.Arg) == 0 {
		return 0
	}
	return s.Arg[0]
}

// pauses are what a step can wait: around every bound of the defaults.
var pauses = []time.Duration{
	time.Millisecond, 100 * time.Millisecond, 251 * time.Millisecond, time.Second, 2100 * time.Millisecond,
	5 * time.Second, 11 * time.Second, 31 * time.Second, 66 * time.Second, 111 * time.Second, 301 * time.Second,
}

// Pause returns the time that the step stands for.
func (s Step) Pause() time.Duration { return pauses[int(s.First())%len(pauses)] }

// Fill replaces the names in the Arg by their values; a name is a dollar sign
// and a letter.
func (s Step) Fill(values map[string]string) []byte {
	b := s.Arg
	for name, value := range values {
		b = bytes.ReplaceAll(b, []byte(name), []byte(value))
	}
	return b
}
