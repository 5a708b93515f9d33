//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package agent

import (
	"net"
	"syscall"
)

// peeker returns a func that reports whether nothing waits on the socket of
// conn, not even its end. It is nil if conn has no socket.
func peeker(conn net.Conn) func() bool {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	p := &socketPeek{raw: raw}
	p.look = p.read
	return p.quiet
}

// socketPeek looks at what waits on a socket without taking it.
type socketPeek struct {
	raw  syscall.RawConn
	look func(fd uintptr) bool // read, made once
	err  error
}

func (p *socketPeek) quiet() bool {
	return p.raw.Read(p.look) == nil && p.err == syscall.EAGAIN
}

// read returns true: it does not want to wait.
func (p *socketPeek) read(fd uintptr) bool {
	var one [1]byte
	for {
		_, _, p.err = syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		if p.err != syscall.EINTR {
			return true
		}
	}
}
