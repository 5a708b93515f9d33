package relay

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// AuthorizeFunc decides whether the request r may attach as, or reach, hostID.
// It is called before anything is upgraded, once for each request, in the
// request's goroutine; ctx is the request's.
//
// It takes the client's token with Credential, which also marks it as used:
// only a used token is removed before the request goes on to the host. From
// the Referer of a page of the same host, which may have been let in by a token
// in its URL, each token= is removed once Credential was called, found or not. An
// error that wraps ErrUnauthorized, ErrForbidden or ErrBadRequest is told to
// the caller as such; see Deny. Any other error is an internal error (500).
type AuthorizeFunc func(ctx context.Context, r *http.Request, hostID string) (Identity, error)

// Identity is who a request comes from, as an AuthorizeFunc found.
type Identity struct {
	// Subject names the caller, for logs and hooks.
	Subject string
	// ExpiresAt ends control sockets and streams with close code 4401. Zero
	// means never.
	ExpiresAt time.Time
	// Headers are set on requests toward the host; what the client sent under
	// the same names is removed first, with _ for - in them too. Host takes the
	// place of the client's (a v2 host gets none). Expect and what is about one
	// hop, such as Connection, Upgrade and Content-Length, are left out. Clients'
	// identities only.
	Headers http.Header
	// Meta is stored with a host's attachment: 1 KiB at most, a longer one is
	// an internal error. It is never part of presence or of a log.
	Meta []byte
}

// Denial is an error with a reason that the caller may read.
type Denial struct {
	Err    error  // ErrUnauthorized, ErrForbidden, ErrBadRequest or another of this package
	Reason string // must hold no secret
}

// Deny makes a Denial, for use in an AuthorizeFunc.
func Deny(err error, reason string) error { return &Denial{err, reason} }

func (d *Denial) Error() string { return d.Err.Error() + ": " + d.Reason }
func (d *Denial) Unwrap() error { return d.Err }

// AllowAll lets everybody in: for tests and quickstarts.
func AllowAll(context.Context, *http.Request, string) (Identity, error) { return Identity{}, nil }

func refuseAll(context.Context, *http.Request, string) (Identity, error) {
	return Identity{}, Deny(ErrForbidden, "no authorization is configured")
}

type ctxKey int

const (
	identityKey ctxKey = iota
	credentialKey
)

// Authorized puts AuthorizeClient before h, for routes of the embedding program
// that are about a host without being served by it: its settings, its log. hostID
// names the host of a request. Who may not reach the host is answered as on the
// Server's own routes. For everybody else h is called with a request in whose
// context IdentityFrom finds the Identity, and out of which the credential that
// was used has been cut. The host need not be online.
func (s *Server) Authorized(hostID func(*http.Request) string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := hostID(r)
		if err := checkHostID(id); err != nil {
			s.deny(w, r, "", err)
			return
		}
		r, _, err := s.authorize(s.cfg.AuthorizeClient, r, id)
		if err != nil {
			s.deny(w, r, id, err)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// IdentityFrom returns the Identity that AuthorizeClient or AuthorizeHost gave
// for a request, from that request's context: in a handler that Authorized
// wraps, and in the slog.Handler of Config.Logger.
func IdentityFrom(ctx context.Context) (Identity, bool) {
	id, ok := ctx.Value(identityKey).(Identity)
	return id, ok
}

// Where a credential was found.
const (
	fromNowhere = iota
	fromOwnHeader
	fromBearer
	fromQuery
)

const ownHeader = "Dialback-Authorization"

// credential is the token of one request and whether a hook has used it.
type credential struct {
	token  string
	source int
	asked  bool // for by a hook
}

// used reports whether a hook has got the token.
func (c *credential) used() bool { return c.asked && c.source != fromNowhere }

// Credential returns the token that came with r, or an empty string, and marks
// it as used. It is looked for in Dialback-Authorization (with or without
// "Bearer "), then in Authorization: Bearer, then in the query as token=; a place
// with an empty token is passed over.
// It is for use in an AuthorizeFunc, by the goroutine that called it.
func Credential(r *http.Request) string {
	c, ok := r.Context().Value(credentialKey).(*credential)
	if !ok {
		c = findCredential(r)
	}
	c.asked = true
	return c.token
}

func findCredential(r *http.Request) *credential {
	own := r.Header.Get(ownHeader)
	if t, ok := bearer(own); ok {
		own = t
	}
	if own != "" {
		return &credential{token: own, source: fromOwnHeader}
	}
	if t, _ := bearer(r.Header.Get("Authorization")); t != "" {
		return &credential{token: t, source: fromBearer}
	}
	for p := range strings.SplitSeq(r.URL.RawQuery, "&") {
		if k, v := queryParam(p); k == "token" && v != "" {
			return &credential{token: v, source: fromQuery}
		}
	}
	return &credential{}
}

// bearer parses RFC 6750's Authorization: Bearer and reports whether v has that
// scheme; the token may be empty, and net/http has trimmed the space off then.
func bearer(v string) (string, bool) {
	scheme, token, _ := strings.Cut(v, " ")
	if !strings.EqualFold(scheme, "bearer") {
		return "", false
	}
	return strings.TrimSpace(token), true
}

// queryParam decodes one element of a raw query; what cannot be decoded stays.
func queryParam(p string) (key, value string) {
	k, v, _ := strings.Cut(p, "=")
	if u, err := url.QueryUnescape(k); err == nil {
		k = u
	}
	if u, err := url.QueryUnescape(v); err == nil {
		v = u
	}
	return k, v
}

// authorize runs hook for r and returns the request to go on with: it carries
// the identity, and the used credential is cut out of it.
func (s *Server) authorize(hook AuthorizeFunc, r *http.Request, hostID string) (*http.Request, Identity, error) {
	c := findCredential(r)
	r = r.WithContext(context.WithValue(r.Context(), credentialKey, c))
	id, err := hook(r.Context(), r, hostID)
	if err != nil {
		return r, id, err
	}
	if len(id.Meta) > maxMeta {
		return r, id, fmt.Errorf("relay: Identity.Meta has %d bytes, more than 1 KiB", len(id.Meta))
	}
	if !id.ExpiresAt.IsZero() && !time.Now().Before(id.ExpiresAt) {
		return r, id, Deny(ErrUnauthorized, "credentials expired")
	}
	if isWebSocket(r) && !c.used() && s.foreignOrigin(r) {
		return r, id, Deny(ErrForbidden, "a WebSocket from a foreign origin needs an explicit token")
	}
	r = r.WithContext(context.WithValue(r.Context(), identityKey, id))
	if c.used() {
		r = cutCredential(r, c)
	}
	if c.asked && len(r.Header["Referer"]) > 0 {
		r = cutReferers(r, c)
	}
	return r, id, nil
}

// cutCredential returns r without c. The rest of the query keeps its bytes.
func cutCredential(r *http.Request, c *credential) *http.Request {
	r2 := *r
	r2.Header = r.Header.Clone()
	r2.Header.Del(ownHeader) // without a token, where c is from somewhere else
	switch c.source {
	case fromBearer:
		r2.Header.Del("Authorization")
	case fromQuery:
		u := *r.URL
		u.RawQuery = cutToken(u.RawQuery, func(token string) bool { return token == c.token })
		u.ForceQuery = false
		r2.URL = &u
		if path, _, ok := strings.Cut(r.RequestURI, "?"); ok {
			r2.RequestURI = strings.TrimSuffix(path+"?"+u.RawQuery, "?")
		}
	}
	return &r2
}

// cutReferers returns r without c in its Referer. What a page loads may be let in
// by a cookie, and the page by a token: from a Referer of the same host every
// token is cut.
func cutReferers(r *http.Request, c *credential) *http.Request {
	r2 := *r
	r2.Header = maps.Clone(r.Header)
	refs := slices.Clone(r.Header["Referer"])
	for i, ref := range refs {
		own := isOwnPage(ref, r.Host)
		refs[i] = cutReferer(ref, func(token string) bool { return own || c.used() && token == c.token })
	}
	r2.Header["Referer"] = refs
	return &r2
}

// isOwnPage reports whether a Referer names a page of host, or of none.
func isOwnPage(ref, host string) bool {
	u, err := url.Parse(ref[:strings.IndexAny(ref+"?", "?#")])
	return err != nil || u.Host == "" || strings.EqualFold(u.Host, host)
}

// cutReferer removes the tokens that cut tells from the query of a Referer, which
// stays as it is if it has none.
func cutReferer(ref string, cuts func(token string) bool) string {
	page, frag, hasFrag := strings.Cut(ref, "#")
	base, query, _ := strings.Cut(page, "?")
	cut := cutToken(query, cuts)
	if cut == query {
		return ref
	}
	if cut != "" {
		base += "?" + cut
	}
	if hasFrag {
		base += "#" + frag
	}
	return base
}

// cutToken removes the elements token= that cuts tells from a raw query, byte by
// byte.
func cutToken(query string, cuts func(token string) bool) string {
	parts := strings.Split(query, "&")
	kept := slices.DeleteFunc(parts, func(p string) bool {
		k, v := queryParam(p)
		return k == "token" && cuts(v)
	})
	return strings.Join(kept, "&")
}

// cutCookies removes the named cookies from h and leaves the others' bytes.
func cutCookies(h http.Header, names []string) {
	if len(names) == 0 || len(h["Cookie"]) == 0 {
		return
	}
	var lines []string
	for _, line := range h["Cookie"] {
		parts := slices.DeleteFunc(strings.Split(line, ";"), func(p string) bool {
			name, _, _ := strings.Cut(strings.TrimSpace(p), "=")
			return slices.Contains(names, strings.TrimSpace(name))
		})
		if kept := strings.Trim(strings.Join(parts, ";"), " \t"); kept != "" {
			lines = append(lines, kept)
		}
	}
	h["Cookie"] = lines
	if len(lines) == 0 {
		delete(h, "Cookie")
	}
}

// foreignOrigin reports whether a browser sent r from a page of another origin.
func (s *Server) foreignOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || slices.ContainsFunc(s.cfg.AllowedOrigins, func(o string) bool { return strings.EqualFold(o, origin) }) {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host)
}

// isWebSocket reports whether r asks for a WebSocket (RFC 6455, section 4.1).
func isWebSocket(r *http.Request) bool {
	return upgradeOf(r) != "" && headerHas(r.Header, "Upgrade", "websocket")
}

// upgradeOf returns the protocols that r asks to be upgraded to, as Upgrade lists
// them. An upgrade may be ignored, and one in HTTP/1.0 must be (RFC 9110, section
// 7.8). One to h2c always is: what followed it would be requests that no relay has
// seen, without the identity's headers.
func upgradeOf(r *http.Request) string {
	if r.ProtoMajor == 1 && r.ProtoMinor == 0 || !headerHas(r.Header, "Connection", "upgrade") {
		return ""
	}
	var protocols []string
	for _, line := range r.Header["Upgrade"] {
		for _, p := range splitList(line) {
			if !strings.HasPrefix(strings.ToLower(p), "h2c") { // nor h2c-14, and so on
				protocols = append(protocols, p)
			}
		}
	}
	return strings.Join(protocols, ", ")
}

// headerHas reports whether a comma-separated header has the token.
func headerHas(h http.Header, name, token string) bool {
	for _, line := range h[name] {
		for t := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(t), token) {
				return true
			}
		}
	}
	return false
}
