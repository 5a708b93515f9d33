package relay

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/transport"
)

// serveHost serves a request to a host: path is what the host sees, escaped,
// and prefix what a route cut off before it.
func (s *Server) serveHost(w http.ResponseWriter, r *http.Request, hostID string, t Target, path, prefix string) {
	c := s.toClient(w)
	served := r
	r, id, err := s.authorize(s.cfg.AuthorizeClient, r, hostID)
	if err != nil {
		s.deny(w, r, hostID, err)
		return
	}
	hub := s.registry.acquire(hostID)
	defer s.registry.release(hub)
	out := s.outbound(r, id, path, prefix)
	out.trailerOf = served // net/http knows no copy: a trailer that was not announced is in its own
	switch err = out.check(); {
	case err != nil:
	case out.upgrade != "":
		if err = s.serveUpgrade(c, r, hub, t, id, out); err == errNoUpgrade {
			out.upgrade = "" // it may be ignored
			err = s.serveExchange(c, r, hub, t, id, out)
		}
	default:
		err = s.serveExchange(c, r, hub, t, id, out)
	}
	if err != nil {
		s.writeError(w, r, hostID, err)
	}
}

// errNoUpgrade: nothing has been asked of the host yet.
var errNoUpgrade = Deny(ErrHostV2, "host speaks v2, which upgrades only the WebSockets that the relay accepts")

// httpSpec asks for the socket of one exchange, in the words of the host's
// version. A v2 host glues the path to an origin: it must begin with exactly
// one slash, or it could lead elsewhere.
func httpSpec(t Target, out *outbound) chooseSpec {
	return func(att store.Attachment) (dialSpec, error) {
		if att.Proto >= 3 {
			return dialSpec{kind: transport.KindTCP, path: out.path, query: out.query, service: t.Service, proto: transport.ProtoHTTP}, nil
		}
		spec := dialSpec{kind: transport.KindHTTP, path: inURL(out.path), query: inURL(out.query)}
		switch {
		case t.Service != "":
			return spec, Deny(ErrHostV2, "host speaks v2, which has one service only")
		case !strings.HasPrefix(out.path, "/") || strings.HasPrefix(out.path, "//"):
			return spec, badRequest("the path must begin with exactly one slash")
		case out.webSocket:
			spec.kind = transport.KindWS
		case out.upgrade != "":
			return spec, errNoUpgrade
		case out.length != 0 && (out.method == http.MethodGet || out.method == http.MethodHead):
			return spec, badRequest("a %s with a body cannot go to a v2 host", out.method)
		}
		return spec, nil
	}
}

// inURL escapes in a path or a query what a v2 host could not be told by JSON, or
// would misread: its URL ends at a #, has a slash for a backslash, and of other
// characters than ASCII Node sends but a byte, be it a line break.
func inURL(s string) string {
	odd := func(c rune) bool { return c == '#' || c == '\\' || c >= 0x80 }
	if !strings.ContainsFunc(s, odd) {
		return s
	}
	var b []byte
	for _, c := range []byte(s) {
		if odd(rune(c)) {
			b = fmt.Appendf(b, "%%%02X", c)
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

// serveUpgrade opens the way to the host first: a client's handshake is
// answered only when the host is there. It returns an error if nothing has
// been answered yet.
func (s *Server) serveUpgrade(c *toClient, r *http.Request, hub *hub, t Target, id Identity, out *outbound) error {
	if err := s.limitBody(out); err != nil {
		return err // the service may take the upgrade for an ordinary request
	}
	st, err := s.begin(s.ctx, hub, t, id) // the stream outlives r's context
	if err != nil {
		return err
	}
	ctx, done := openContext(st, r)
	data, err := s.open(ctx, hub, st.id, httpSpec(t, out))
	if err != nil {
		done()
		st.finish()
		return err
	}
	st.opened(data.att)
	if data.att.Proto < 3 {
		done()
		s.spliceWS(c.w, r, st, data.conn)
		return nil
	}
	defer done()
	return s.upgrade(ctx, c, r, st, s.newHTTPStream(data, hub, t.Service), out)
}

// spliceWS joins a client's WebSocket with the data socket of a v2 host. The
// data socket has not been read yet: the kernel holds the host's first words.
func (s *Server) spliceWS(w http.ResponseWriter, r *http.Request, st *stream, host transport.Conn) {
	client, err := s.acceptWS(w, r, firstSubprotocol(r))
	if err != nil {
		host.Close(transport.CloseInternal, "the client's handshake failed")
		st.finish()
		return
	}
	s.registry.acquire(st.hub.hostID)
	run := func() {
		defer s.registry.release(st.hub)
		defer st.finish()
		(&splice{srv: s, st: st, client: client, host: host}).run()
	}
	if !s.spawn(run) {
		client.CloseNow()
		host.CloseNow()
		s.registry.release(st.hub)
		st.finish()
	}
}

// serveExchange serves one request and its response. It returns an error if
// nothing has been answered yet.
func (s *Server) serveExchange(c *toClient, r *http.Request, hub *hub, t Target, id Identity, out *outbound) error {
	if err := s.limitBody(out); err != nil {
		return err
	}
	st, err := s.begin(r.Context(), hub, t, id)
	if err != nil {
		return err
	}
	defer st.finish()
	out.begin = func() {
		if r.ProtoMajor == 1 {
			c.rc.EnableFullDuplex() // else net/http eats the body before the answer, and truncates answers
		}
	}
	c.informs(r, out)
	resp, err := s.exchange(st.ctx, st, t, out)
	if err != nil {
		out.stopUpload(c.w)
		return err
	}
	s.answer(c, r, st, out, resp)
	return nil
}
