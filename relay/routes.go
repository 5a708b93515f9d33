package relay

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"

	"github.com/dialback/dialback/transport"
)

// ServeHTTP serves the routes of PROTOCOL.md below the mount point: mount the
// Server with http.StripPrefix. Paths are parsed as they were sent and never
// cleaned, so that what follows /hosts/{hostID} arrives to the letter.
//
// A request's trailers go to agents. Those that were not announced by Trailer are
// known to net/http's own Request alone, and are lost where a handler in front has
// made a copy of it, as http.StripPrefix does.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := pathOf(r.URL)
	switch path {
	case "/v2/control":
		s.serveControl(w, r)
		return
	case "/v2/dial":
		s.serveDialBack(w, r)
		return
	case "/presence":
		s.servePresence(w, r)
		return
	case "/health":
		s.serveHealth(w, r)
		return
	}
	if strings.HasPrefix(path, "/node/") {
		s.serveNode(w, r, path)
		return
	}
	if rest, ok := strings.CutPrefix(path, "/hosts/"); ok {
		s.serveHostsPath(w, r, "/hosts/", rest)
		return
	}
	if rest, ok := strings.CutPrefix(path, "/connect/"); ok {
		hostID, err := pathHostID(rest)
		if err != nil {
			s.deny(w, r, "", err)
			return
		}
		s.serveConnect(w, r, hostID)
		return
	}
	s.boundReply(w)
	http.NotFound(w, r)
}

// serveHostsPath serves {hostID}/{path...}, which is rest, below the route.
func (s *Server) serveHostsPath(w http.ResponseWriter, r *http.Request, route, rest string) {
	id, tail, slash := strings.Cut(rest, "/")
	hostID, err := pathHostID(id)
	if err != nil {
		s.deny(w, r, "", err)
		return
	}
	if tail == "_whoowns" {
		s.serveWhoOwns(w, r, hostID)
		return
	}
	if !slash && upgradeOf(r) == "" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		// A page at /hosts/x would resolve its links against /hosts/.
		target := "./" + id + "/"
		if r.URL.RawQuery != "" {
			target += "?" + r.URL.RawQuery
		}
		s.boundReply(w)
		w.Header().Set("Location", target)
		w.WriteHeader(http.StatusPermanentRedirect)
		return
	}
	s.serveHost(w, r, hostID, Target{}, "/"+tail, route+id)
}

// ControlHandler serves hosts' control sockets at whatever path it is mounted.
// Deployed v2 hosts ignore a path prefix in their relay URL; for them mount it
// at /v2/control of the root.
func (s *Server) ControlHandler() http.Handler { return http.HandlerFunc(s.serveControl) }

// DialHandler serves hosts' dial-backs at whatever path it is mounted; see
// ControlHandler.
func (s *Server) DialHandler() http.Handler { return http.HandlerFunc(s.serveDialBack) }

// PresenceHandler serves GET /presence?hostIds=a,b.
func (s *Server) PresenceHandler() http.Handler { return http.HandlerFunc(s.servePresence) }

// HealthHandler serves GET /health.
func (s *Server) HealthHandler() http.Handler { return http.HandlerFunc(s.serveHealth) }

// HostsHandler serves {hostID}/{path...} below whatever prefix was stripped,
// with a leading slash: http.StripPrefix("/machines", srv.HostsHandler()).
func (s *Server) HostsHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.serveHostsPath(w, r, "/", strings.TrimPrefix(pathOf(r.URL), "/"))
	})
}

// ConnectHandler serves byte streams to {hostID} below whatever prefix was
// stripped; see HostsHandler.
func (s *Server) ConnectHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hostID, err := pathHostID(strings.TrimPrefix(pathOf(r.URL), "/"))
		if err != nil {
			s.deny(w, r, "", err)
			return
		}
		s.serveConnect(w, r, hostID)
	})
}

// Target says what of a host is reached.
type Target struct {
	// Service is one of the names that the agent offers. Empty means its
	// default service.
	Service string
}

// ServeHost serves r from the host hostID, at r's own path: for routes and
// subdomains of the embedder's. AuthorizeClient is asked as on the Server's own
// routes. It returns when the exchange is over or, for a WebSocket of a v2
// host, when the stream has begun.
func (s *Server) ServeHost(w http.ResponseWriter, r *http.Request, hostID string, t Target) {
	if err := checkHostID(hostID); err != nil {
		s.deny(w, r, "", err)
		return
	}
	s.serveHost(w, r, hostID, t, pathOf(r.URL), "")
}

// pathOf is the path of u as it was sent. For a single byte that net/url would
// have escaped, URL.EscapedPath escapes all of it anew, and a %2F is a slash
// then. What would not be a path in a request line it does escape. No path at all,
// which the absolute form may have, is / (RFC 9112, section 3.2.1).
func pathOf(u *url.URL) string {
	noPath := func(c rune) bool { return c <= ' ' || c == 0x7f || c == '?' }
	if u.RawPath != "" && !strings.ContainsFunc(u.RawPath, noPath) {
		if p, err := url.PathUnescape(u.RawPath); err == nil && p == u.Path {
			return u.RawPath
		}
	}
	return cmp.Or(u.EscapedPath(), "/")
}

// pathHostID decodes a host ID that is one path segment.
func pathHostID(segment string) (string, error) {
	id, err := url.PathUnescape(segment)
	if err != nil {
		return "", badRequest("host id: bad escape")
	}
	return id, checkHostID(id)
}

// checkHostID checks the wire's grammar: [A-Za-z0-9._:@~-]{1,128}, not . or ..
func checkHostID(id string) error {
	if id == "" || len(id) > 128 || id == "." || id == ".." {
		return badRequest("host id must have 1 to 128 characters of A-Z a-z 0-9 . _ : @ ~ -")
	}
	for _, c := range []byte(id) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("._:@~-", c) >= 0:
		default:
			return badRequest("host id must have 1 to 128 characters of A-Z a-z 0-9 . _ : @ ~ -")
		}
	}
	return nil
}

// deny answers a request that goes no further: a WebSocket is accepted and
// closed with its code, since browsers cannot read a refused handshake; a
// plain request gets a status and a JSON body.
func (s *Server) deny(w http.ResponseWriter, r *http.Request, hostID string, err error) {
	if !isWebSocket(r) {
		s.writeError(w, r, hostID, err)
		return
	}
	conn, aerr := s.acceptWS(w, r, "")
	if aerr != nil {
		return
	}
	f := s.report(r.Context(), hostID, err)
	conn.Close(f.Close, f.Message)
}

// acceptWS upgrades a client's request, or a dial-back.
func (s *Server) acceptWS(w http.ResponseWriter, r *http.Request, subprotocol string) (transport.Conn, error) {
	conn, err := transport.Accept(w, r, &transport.AcceptOptions{
		Options:     transport.Options{ReadLimit: -1, WriteTimeout: s.cfg.StallTimeout, CloseTimeout: s.cfg.CloseTimeout},
		Subprotocol: subprotocol,
	})
	if err == nil {
		s.adopt(conn)
	}
	return conn, err
}
