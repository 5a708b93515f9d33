package bench_test

import (
	"errors"
	"io"
	"net"
	"time"
)

// oneWay is what a byte takes to a far host, or back.
const oneWay = 25 * time.Millisecond

// runDelay is a TCP proxy with an address in front of each of addrs, and one of
// its own that sends back what it gets. Behind it everything is far: bytes take
// oneWay in either direction, and a new connection a round trip before that.
func runDelay(addrs []string) error {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go acceptEach(echo, func(c *net.TCPConn) {
		defer c.Close()
		_, _ = io.Copy(struct{ io.Writer }{c}, c) // no splice(2): one byte at once
	})
	var fronts []string
	for _, addr := range append(addrs, echo.Addr().String()) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		go acceptEach(ln, func(c *net.TCPConn) { delayConn(c, addr) })
		fronts = append(fronts, ln.Addr().String())
	}
	return wait(fronts...)
}

// acceptEach calls serve for each connection, in a goroutine.
func acceptEach(ln net.Listener, serve func(*net.TCPConn)) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go serve(c.(*net.TCPConn))
	}
}

// delayConn serves a connection to addr.
func delayConn(client *net.TCPConn, addr string) {
	defer client.Close()
	open := time.Now().Add(2 * oneWay)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer c.Close()
	server := c.(*net.TCPConn)
	up, down := newDelayed(client, server), newDelayed(server, client)
	go up.read(open)
	go down.read(open)
	go up.write()
	down.write()
	<-up.done
}

// delayed is one direction of a connection.
type delayed struct {
	// Immutable after newDelayed.
	from, to *net.TCPConn
	pieces   chan piece    // closed by read at the end of from
	done     chan struct{} // closed by write
}

// piece is what one Read gave, and when it arrives.
type piece struct {
	data []byte
	at   time.Time
	end  error // io.EOF, or how from broke
}

func newDelayed(from, to *net.TCPConn) *delayed {
	return &delayed{from: from, to: to, pieces: make(chan piece, 256), done: make(chan struct{})}
}

// read takes what is sent, at the time open at the earliest.
func (d *delayed) read(open time.Time) {
	defer close(d.pieces)
	for {
		buf := make([]byte, 32<<10)
		n, err := d.from.Read(buf)
		sent := time.Now()
		if sent.Before(open) {
			sent = open
		}
		select {
		case d.pieces <- piece{buf[:n], sent.Add(oneWay), err}:
		case <-d.done:
			return
		}
		if err != nil {
			return
		}
	}
}

// write delivers it. A half close stays one, and a broken connection breaks.
func (d *delayed) write() {
	defer close(d.done)
	for p := range d.pieces {
		time.Sleep(time.Until(p.at))
		if _, err := d.to.Write(p.data); err != nil {
			d.cut()
			return
		}
		switch {
		case errors.Is(p.end, io.EOF):
			_ = d.to.CloseWrite()
		case p.end != nil:
			d.cut()
		}
	}
}

func (d *delayed) cut() {
	_ = d.from.Close()
	_ = d.to.Close()
}
