//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package agent_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/internal/memnet"
)

// What an idle connection shows before it is used again.
func TestHop_QuietConnections(t *testing.T) {
	for _, tt := range []struct {
		name  string
		act   func(t *testing.T, client net.Conn, server net.Conn)
		quiet bool
	}{
		{"nothing", func(*testing.T, net.Conn, net.Conn) {}, true},
		{"bytes", func(t *testing.T, client, server net.Conn) {
			_, _ = io.WriteString(server, "x")
			awaitReadable(t, client)
		}, false},
		{"the end", func(t *testing.T, client, server net.Conn) {
			_ = server.Close()
			awaitReadable(t, client)
		}, false},
		{"half an end", func(t *testing.T, client, server net.Conn) {
			_ = server.(*net.TCPConn).CloseWrite()
			awaitReadable(t, client)
		}, false},
		{"a reset", func(t *testing.T, client, server net.Conn) {
			_ = server.(*net.TCPConn).SetLinger(0)
			_ = server.Close()
			awaitReadable(t, client)
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client, server := tcpPair(t)
			tt.act(t, client, server)
			for range 2 { // looking takes nothing
				if quiet := agent.Quiet(client); quiet != tt.quiet {
					t.Errorf("quiet is %v, want %v", quiet, tt.quiet)
				}
			}
			if tt.quiet { // and leaves the connection as it was
				_, _ = io.WriteString(server, "y")
				var p [1]byte
				if _, err := io.ReadFull(client, p[:]); err != nil || p[0] != 'y' {
					t.Errorf("then %q, %v", p, err)
				}
			}
		})
	}
}

// A connection without a socket is read from for a moment.
func TestHop_QuietWithoutSocket(t *testing.T) {
	client, server := memnet.Pipe()
	defer client.Close()
	defer server.Close()
	if !agent.Quiet(client) {
		t.Error("an idle connection is not quiet")
	}
	_, _ = io.WriteString(server, "x")
	if agent.Quiet(client) {
		t.Error("a connection on which a byte waits is quiet")
	}
}

// What waits decrypted above the socket is found as well.
func TestHop_QuietTLS(t *testing.T) {
	srv := httptest.NewUnstartedServer(nil)
	srv.StartTLS()
	defer srv.Close()
	clientSide, serverSide := tcpPair(t)
	server := tls.Server(serverSide, srv.TLS)
	cfg := srv.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	cfg.ServerName = "example.com"
	client := tls.Client(clientSide, cfg)
	go func() { _, _ = io.WriteString(server, "ab") }()
	var p [1]byte
	if _, err := io.ReadFull(client, p[:]); err != nil {
		t.Fatal(err)
	}
	if agent.Quiet(client) {
		t.Error("a connection of whose last record a byte waits is quiet")
	}
	if !agent.Quiet(client) { // it was taken
		t.Error("an idle connection is not quiet")
	}
	_ = server.Close()
	awaitReadable(t, clientSide)
	if agent.Quiet(client) {
		t.Error("a closed connection is quiet")
	}
}

func tcpPair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err = net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err = ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return client, server
}

// awaitReadable waits until a read of conn would not wait, without reading.
func awaitReadable(t *testing.T, conn net.Conn) {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Read(func(fd uintptr) bool {
		var p [1]byte
		_, _, err := syscall.Recvfrom(int(fd), p[:], syscall.MSG_PEEK)
		return err != syscall.EAGAIN
	})
	if err != nil {
		t.Fatal(err)
	}
}
