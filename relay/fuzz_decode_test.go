package relay_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/store/memory"
)

// decoder is a Server that nobody talks to.
func decoder(f *testing.F) *relay.Server {
	s, err := relay.New(relay.Config{Store: memory.New(), Node: relay.Node{ID: "a"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	return s
}

// FuzzTicket: a ticket is good as it was issued, for its host, and in no other
// form and for no other host.
func FuzzTicket(f *testing.F) {
	s := decoder(f)
	issued := s.ForgeTicket("a", "h")
	f.Add(issued, "h")
	f.Add(issued+".", "h")
	f.Add("."+issued, "h")
	f.Add(issued, "h\x00")
	f.Add("a.b.c", "h")
	f.Add("..", "")
	f.Add(strings.Repeat("a.", 70), "h")
	f.Fuzz(func(t *testing.T, ticket, hostID string) {
		if node, ok := s.CheckTicket(ticket, hostID); ok && (ticket != issued || hostID != "h") {
			t.Fatalf("%q is good for %q, of node %q", ticket, hostID, node)
		}
		mine := s.ForgeTicket("a", hostID)
		if node, ok := s.CheckTicket(mine, hostID); !ok || node != "a" {
			t.Fatalf("the ticket of %q is not good for it", hostID)
		}
		for _, other := range []string{hostID + "x", ticket, ""} {
			if _, ok := s.CheckTicket(mine, other); ok && other != hostID {
				t.Fatalf("the ticket of %q is good for %q", hostID, other)
			}
		}
	})
}

var hostIDGrammar = regexp.MustCompile(`^[A-Za-z0-9._:@~-]{1,128}$`)

// FuzzHostID: what a path names is a host ID of the grammar, or refused.
func FuzzHostID(f *testing.F) {
	for _, s := range []string{"laptop", "a%2Fb", "..", "%2e%2e", "a:b@c~", "%", "%zz", "%00", "é", "h%2Fadmin|", strings.Repeat("x", 129)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, segment string) {
		id, err := relay.PathHostID(segment)
		good := hostIDGrammar.MatchString(id) && id != "." && id != ".."
		if good != (err == nil) {
			t.Fatalf("%q is the host ID %q: %v", segment, id, err)
		}
	})
}

// FuzzPath: what is read as the path of a request line is its path to the letter.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"/", "/a%2Fb|", "/a%2Fb\xff?c", "//a", "/a?b?", "/%2f%3F#", "/*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || !strings.HasPrefix(target, "/") || strings.Contains(target, " ") {
			return // net/http lets none of these in, or it is no path
		}
		if want, _, _ := strings.Cut(target, "?"); relay.PathOf(u) != want {
			t.Fatalf("%q is the path %q", target, relay.PathOf(u))
		}
	})
}

var bearerScheme = regexp.MustCompile(`(?i)^bearer( |$)`)

// FuzzCredential: the token that let a request in is not in what goes on to the
// host, as the relay itself would find it there, and no token at all is in a
// Referer of the same host's; what is no such token keeps its bytes and its order.
func FuzzCredential(f *testing.F) {
	s := decoder(f)
	f.Add("", "", "a=b&token=secret&c", "http://x/?token=secret#y")
	f.Add("Bearer secret", "", "token=other", "")
	f.Add("", "bearer  secret", "%74oken=secret&token=%73ecret", "?&token=secret&&")
	f.Add("x", "Bearer secret", "token=x", "http://x/?token=x&token=y")
	f.Add("", "Basic eA==", "token", "")
	f.Add("", "Bearer \u00a0", "token=secret&a?", "http://x/?")
	f.Add("bearer \u00a0", "", "a&&b?", "/?#")
	f.Add("Bearer", "bearer", "token=secret", "")
	f.Add("", "", "", "http://Example.com/p?a&token=secret&%74oken&b#f")
	f.Add("secret", "", "", "http://other/?token=x&token=secret")
	f.Add("", "", "a", "http://example.com/%zz?token=x")
	f.Add("", "", "", "?token#0?0")
	f.Add("", "", "", "/#?token=x")
	f.Fuzz(func(t *testing.T, own, authorization, query, referer string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.RawQuery = query
		for name, value := range map[string]string{"Dialback-Authorization": own, "Authorization": authorization, "Referer": referer} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		var token string
		hook := func(_ context.Context, r *http.Request, _ string) (relay.Identity, error) {
			token = relay.Credential(r)
			return relay.Identity{}, nil
		}
		cut, _, err := relay.Authorize(s, hook, r, "h")
		if err != nil {
			t.Fatal(err)
		}
		sent := cut.Header.Get("Referer")
		if sent != referer && !isSubsequence(refererQuery(sent), refererQuery(referer)) {
			t.Fatalf("the Referer %q became %q", referer, sent)
		}
		base := referer[:strings.IndexAny(referer+"?", "?#")]
		page, err := url.Parse(base)
		if foreign := err == nil && page.Host != "" && !strings.EqualFold(page.Host, r.Host); !foreign {
			if hasToken(refererQuery(sent), func(string) bool { return true }) {
				t.Fatalf("a token of the page's is still in %q, which was %q", sent, referer)
			}
		} else if sent != referer && (token == "" || !hasToken(refererQuery(referer), func(v string) bool { return v == token })) {
			t.Fatalf("the foreign Referer %q became %q", referer, sent)
		}
		if !hasToken(refererQuery(referer), func(string) bool { return true }) && sent != referer {
			t.Fatalf("the Referer %q has no token, and became %q", referer, sent)
		}
		if token == "" {
			if cut.URL.RawQuery != query {
				t.Fatalf("no token was taken, and %q became %q", query, cut.URL.RawQuery)
			}
			return
		}
		inOwn := own != "" && strings.TrimSpace(bearerScheme.ReplaceAllString(own, "")) != ""
		fromQuery := !inOwn && r.Header.Get("Authorization") == cut.Header.Get("Authorization")
		switch {
		case own != "" && cut.Header.Get("Dialback-Authorization") != "":
			t.Fatal("the token's header goes on to the host")
		case !fromQuery && cut.URL.RawQuery != query:
			t.Fatalf("the token was in a header, and the query %q became %q", query, cut.URL.RawQuery)
		}
		queries := []string{refererQuery(sent)}
		if fromQuery {
			queries = append(queries, cut.URL.RawQuery)
			if !isSubsequence(cut.URL.RawQuery, query) {
				t.Fatalf("%q became %q", query, cut.URL.RawQuery)
			}
		}
		for _, q := range queries {
			if hasToken(q, func(v string) bool { return v == token }) {
				t.Fatalf("token %q of %q %q %q %q is still in %q", token, own, authorization, query, referer, q)
			}
		}
	})
}

// hasToken reports whether a query has a token= that is one of those. What cannot
// be decoded is taken as it is.
func hasToken(query string, is func(string) bool) bool {
	decoded := func(s string) string {
		if d, err := url.QueryUnescape(s); err == nil {
			return d
		}
		return s
	}
	return slices.ContainsFunc(strings.Split(query, "&"), func(part string) bool {
		name, value, _ := strings.Cut(part, "=")
		return decoded(name) == "token" && is(decoded(value))
	})
}

func refererQuery(referer string) string {
	page, _, _ := strings.Cut(referer, "#")
	_, q, _ := strings.Cut(page, "?")
	return q
}

// isSubsequence reports whether the elements of cut are some of those of whole,
// in their order.
func isSubsequence(cut, whole string) bool {
	if cut == "" {
		return true
	}
	rest := strings.Split(whole, "&")
	for part := range strings.SplitSeq(cut, "&") {
		i := slices.Index(rest, part)
		if i < 0 {
			return false
		}
		rest = rest[i+1:]
	}
	return true
}

// FuzzCookies: a host sees no private cookie, and every other one.
func FuzzCookies(f *testing.F) {
	f.Add("a=b; session=secret; c=d", "")
	f.Add("session=secret", "session=2;session=3")
	f.Add(" session =x;;=;session", `session="a;b"; sessionx=1`)
	f.Fuzz(func(t *testing.T, first, second string) {
		if strings.Count(first+second, ";") > 2000 {
			return // from 3000 cookies on, net/http sees none
		}
		h := http.Header{"Cookie": {first, second}}
		before := (&http.Request{Header: h.Clone()}).Cookies()
		relay.CutCookies(h, []string{"session"})
		after := (&http.Request{Header: h}).Cookies()
		want := slices.DeleteFunc(before, func(c *http.Cookie) bool { return c.Name == "session" })
		if !slices.EqualFunc(after, want, func(a, b *http.Cookie) bool { return a.Name == b.Name && a.Value == b.Value }) {
			t.Fatalf("%q, %q became %q: %v, want %v", first, second, h["Cookie"], after, want)
		}
	})
}

// FuzzSubprotocol: what is echoed is one that the client has offered, and can
// be a header.
func FuzzSubprotocol(f *testing.F) {
	f.Add("a, b")
	f.Add(" ,, x")
	f.Fuzz(func(t *testing.T, offered string) {
		r := &http.Request{Header: http.Header{"Sec-Websocket-Protocol": {offered}}}
		if p := relay.FirstSubprotocol(r); p != strings.TrimSpace(p) || strings.Contains(p, ",") || !strings.Contains(offered, p) {
			t.Fatalf("%q offers %q", offered, p)
		}
	})
}
