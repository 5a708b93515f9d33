package relay

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/dialback/dialback/store"
)

// hop hands a dial-back that landed here to the node that waits for it: the
// upgrade as it came, and then raw bytes. One hop is all: the other end serves
// only its own tickets. Raw and hijacked, because httputil.ReverseProxy loses
// bytes that arrive together with an upgrade (golang/go#80875).
func (s *Server) hop(w http.ResponseWriter, r *http.Request, to store.Node) {
	s.stats.hopping.Add(1)
	passed := false
	defer func() {
		if !passed {
			s.stats.hopping.Add(-1)
		}
	}()
	if s.leaving() {
		s.writeError(w, r, "", ErrDraining)
		return
	}
	up, br, resp, err := s.reach(r, to)
	if err != nil && r.Context().Err() != nil { // the host has given it up
		s.writeError(w, r, "", errClientGone)
		return
	}
	if err != nil || resp.StatusCode == http.StatusUnauthorized {
		s.nodes.read() // the node may be another process since
		if next, ok := s.nodes.successor(to); ok && next.ID == to.ID {
			if up != nil {
				up.Close()
			}
			up, br, resp, err = s.reach(r, next)
		}
	}
	switch {
	case err != nil:
		s.writeError(w, r, "", ErrNodeUnreachable)
		return
	case resp.StatusCode == http.StatusNotFound:
		up.Close()
		s.unknownTicket(w)
		return
	case resp.StatusCode != http.StatusSwitchingProtocols: // of what stands before the node, it may be
		up.Close()
		s.writeError(w, r, "", ErrNodeUnreachable)
		return
	}
	up.SetDeadline(time.Time{})
	h := w.Header()
	for k, vs := range resp.Header {
		h[k] = vs
	}
	s.boundReply(w)
	w.WriteHeader(http.StatusSwitchingProtocols)
	host, brw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		up.Close()
		return
	}
	host.SetReadDeadline(time.Time{})
	host.SetWriteDeadline(time.Now().Add(s.cfg.StallTimeout)) // Hijack has taken it back
	brw.Writer.Flush()
	s.stats.hops.Add(1)
	fromHost, _ := brw.Reader.Peek(brw.Reader.Buffered())
	fromNode, _ := br.Peek(br.Buffered())
	j := &joined{limit: s.cfg.StallTimeout, host: host, node: up}
	run := func() {
		defer s.stats.hopping.Add(-1)
		j.run(s.ctx, fromHost, fromNode)
	}
	if passed = s.spawn(run); !passed {
		host.Close()
		up.Close()
	}
}

// leaving reports whether dial-backs for other nodes are no longer taken.
func (s *Server) leaving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase >= phaseLeaving
}

// reach connects to a node and passes the upgrade on. Without an error the
// connection is the caller's.
func (s *Server) reach(r *http.Request, to store.Node) (net.Conn, *bufio.Reader, *http.Response, error) {
	up, err := s.dialNode(r.Context(), to)
	if err != nil {
		if r.Context().Err() == nil { // else the host has given it up, which says nothing of the node
			s.nodes.suspect(to.Incarnation)
		}
		return nil, nil, nil, err
	}
	br := bufio.NewReader(io.LimitReader(up, int64(s.cfg.MaxHeader))) // what follows is read from up itself
	resp, err := s.sendHop(up, br, r, to)
	if err != nil {
		up.Close()
		return nil, nil, nil, err
	}
	return up, br, resp, nil
}

// sendHop sends the upgrade and reads its answer.
func (s *Server) sendHop(up net.Conn, br *bufio.Reader, r *http.Request, to store.Node) (*http.Response, error) {
	// The other node asks the Store before it answers, and may have to wait for
	// a read that is under way.
	up.SetDeadline(time.Now().Add(s.cfg.NodeTimeout + 2*s.cfg.StoreTimeout))
	q := r.URL.Query()
	uri := "/node/hop?" + url.Values{"hostId": {q.Get("hostId")}, "ticket": {q.Get("ticket")}, "via": {s.nodeID}}.Encode()
	req, err := http.NewRequest(http.MethodGet, strings.TrimSuffix(to.URL, "/")+uri, nil)
	if err != nil {
		return nil, err
	}
	for k, vs := range r.Header {
		if strings.HasPrefix(k, "Sec-Websocket-") {
			req.Header[k] = vs
		}
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "websocket")
	req.Header.Set(nodeHeader, s.nodeMAC(http.MethodGet, to.ID, to.Incarnation, uri, nil))
	if err := req.Write(up); err != nil {
		return nil, err
	}
	return http.ReadResponse(br, req)
}

// dialNode connects to another node, within NodeTimeout.
func (s *Server) dialNode(ctx context.Context, to store.Node) (net.Conn, error) {
	u, err := url.Parse(to.URL)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.NodeTimeout)
	defer cancel()
	addr := u.Host
	if u.Port() == "" {
		addr = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	dial := s.cfg.Node.DialContext
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	conn, err := dial(ctx, "tcp", addr)
	if err != nil || u.Scheme != "https" {
		return conn, err
	}
	tc := s.cfg.Node.TLS.Clone()
	if tc == nil {
		tc = &tls.Config{}
	}
	if tc.ServerName == "" {
		tc.ServerName = u.Hostname()
	}
	tc.NextProtos = []string{"http/1.1"}
	secure := tls.Client(conn, tc)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secure, nil
}

// joined is a host's connection and the one to the node that waits for it.
type joined struct {
	limit time.Duration
	host  net.Conn
	node  net.Conn
}

// run copies both ways until either connection ends, or ctx does: the
// WebSocket inside has its own way to say goodbye.
func (j *joined) run(ctx context.Context, fromHost, fromNode []byte) {
	stop := context.AfterFunc(ctx, j.close)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		j.copy(j.node, j.host, fromHost)
	}()
	j.copy(j.host, j.node, fromNode)
	<-done
}

func (j *joined) copy(dst, src net.Conn, first []byte) {
	defer j.close()
	w := &stallWriter{dst, j.limit}
	if len(first) > 0 {
		if _, err := w.Write(first); err != nil {
			return
		}
	}
	copyBytes(w, io.Reader(src))
}

func (j *joined) close() {
	j.host.Close()
	j.node.Close()
}
