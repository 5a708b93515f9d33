package agent

import (
	"bytes"
	"net/http"
	"strconv"
	"time"
)

// head is the head of an HTTP/1 message, or the trailer section of one. Its
// fields are kept as they came and in their order; what concerns one hop only,
// the framing above all, is taken out of them and told by the rest.
//
// The slices are parts of what was parsed, and good for as long as that is.
// A head may be used again and again.
type head struct {
	method, target []byte // of a request
	status         int    // of an answer
	reason         []byte
	minor          int // HTTP/1.minor

	fields []field // end to end

	length   int64    // Content-Length; -1 without
	chunked  bool     // Transfer-Encoding: chunked
	trailers [][]byte // values of Trailer

	hosts      int      // how many Host fields there were
	named      [][]byte // what Connection names, but for the next three
	closes     bool     // Connection: close
	keepsAlive bool     // Connection: keep-alive
	upgrades   bool     // Connection: upgrade
	upgrade    []byte   // the first Upgrade
	keepAlive  [][]byte // values of Keep-Alive
	teTrailers bool     // TE: trailers
	expects    bool     // Expect: 100-continue
}

// field is one line of a head.
type field struct{ name, value []byte }

// headError says what is wrong with a head.
type headError string

func (e headError) Error() string { return "agent: " + string(e) }

const (
	errStartLine = headError("the first line is malformed")
	errField     = headError("a header line is malformed")
	errFraming   = headError("the framing of the body is ambiguous")
	errVersion   = headError("the version is not HTTP/1.0 or HTTP/1.1")
	errNamed     = headError("Connection names more than 32 fields")
)

// maxNamed bounds the fields that Connection may name: each field of a head is
// compared with each of them.
const maxNamed = 32

// reset forgets everything but the room of slices that are no larger than most
// heads need.
func (h *head) reset() {
	*h = head{length: -1, fields: emptied(h.fields), trailers: emptied(h.trailers), named: emptied(h.named), keepAlive: emptied(h.keepAlive)}
}

// maxKept bounds the members for which emptied keeps room.
const maxKept = 64

// emptied keeps the room of s, unless that is large, and nothing that was in it.
func emptied[T any](s []T) []T {
	if cap(s) > maxKept {
		return nil
	}
	clear(s[:cap(s)])
	return s[:0]
}

// parseRequest parses the head of a request, which ends with its empty line.
func (h *head) parseRequest(p []byte) error {
	h.reset()
	line, rest := cutLine(p)
	method, line, ok1 := bytes.Cut(line, []byte{' '})
	target, version, ok2 := bytes.Cut(line, []byte{' '})
	if !ok1 || !ok2 || !isToken(method) || len(target) == 0 {
		return errStartLine
	}
	for _, c := range target {
		if c <= ' ' || c == 0x7f || c == '#' { // a request target has no fragment
			return errStartLine
		}
	}
	h.method, h.target = method, target
	if err := h.parseVersion(version); err != nil {
		return err
	}
	if err := h.parseFields(rest); err != nil {
		return err
	}
	if h.hosts > 1 || h.hosts == 0 && h.minor > 0 {
		return headError("there must be one Host")
	}
	return nil
}

// parseAnswer parses the head of an answer, which ends with its empty line.
func (h *head) parseAnswer(p []byte) error {
	h.reset()
	line, rest := cutLine(p)
	version, line, ok := bytes.Cut(line, []byte{' '})
	if !ok {
		return errStartLine
	}
	if err := h.parseVersion(version); err != nil {
		return err
	}
	code, reason, _ := bytes.Cut(bytes.TrimLeft(line, " "), []byte{' '})
	status, err := strconv.ParseUint(string(code), 10, 16)
	if err != nil || len(code) != 3 || status < 100 || !isFieldValue(reason) {
		return errStartLine
	}
	h.status, h.reason = int(status), reason
	return h.parseFields(rest)
}

func (h *head) parseVersion(p []byte) error {
	switch string(p) {
	case "HTTP/1.1":
		h.minor = 1
	case "HTTP/1.0":
	default:
		return errVersion
	}
	return nil
}

// parseFields parses header lines up to the empty one. A line that goes on in
// the next one (obs-fold) becomes one line, as RFC 9112 wants it.
func (h *head) parseFields(p []byte) error {
	unfold(p)
	encoded := false
	for {
		f, rest, err := cutField(p)
		if err != nil {
			return err
		}
		if f.name == nil {
			break
		}
		p = rest
		if err := h.take(f, &encoded); err != nil {
			return err
		}
	}
	if encoded && (h.length >= 0 || h.minor == 0) {
		return errFraming
	}
	switch n := len(h.named); {
	case n > maxNamed:
		return errNamed
	case n > 0:
		h.dropNamed()
	}
	return nil
}

// take keeps a field, or notes what one says about this hop.
func (h *head) take(f field, encoded *bool) error {
	name, value := f.name, f.value
	var lower [24]byte
	if len(name) <= len(lower) {
		switch string(toLower(lower[:], name)) {
		case "content-length":
			n, err := strconv.ParseUint(string(value), 10, 63)
			if err != nil || h.length >= 0 && h.length != int64(n) {
				return errFraming
			}
			h.length = int64(n)
			return nil
		case "transfer-encoding":
			if *encoded || !bytes.EqualFold(value, []byte("chunked")) {
				return errFraming
			}
			*encoded, h.chunked = true, true
			return nil
		case "connection":
			h.takeConnection(value)
			return nil
		case "upgrade":
			if h.upgrade == nil {
				h.upgrade = value
			}
			return nil
		case "te":
			h.teTrailers = h.teTrailers || listHas(value, "trailers")
			return nil
		case "trailer":
			h.trailers = append(h.trailers, value)
			return nil
		case "keep-alive":
			h.keepAlive = append(h.keepAlive, value)
			return nil
		case "proxy-connection", "proxy-authenticate", "proxy-authorization":
			return nil
		case "host":
			h.hosts++
			return nil
		case "expect":
			h.expects = h.expects || bytes.EqualFold(value, []byte("100-continue"))
		case "dialback-error":
			if h.status != 0 {
				return nil // only answers of the agent's own have one
			}
		}
	}
	h.fields = append(h.fields, f)
	return nil
}

func (h *head) takeConnection(list []byte) {
	for name := range bytes.SplitSeq(list, []byte{','}) {
		switch name = bytes.Trim(name, " \t"); {
		case len(name) == 0:
		case bytes.EqualFold(name, []byte("close")):
			h.closes = true
		case bytes.EqualFold(name, []byte("keep-alive")):
			h.keepsAlive = true
		case bytes.EqualFold(name, []byte("upgrade")):
			h.upgrades = true
		default:
			h.named = append(h.named, name)
		}
	}
}

// dropNamed drops the fields that Connection names. Those that tell who the
// client is are never dropped that way.
func (h *head) dropNamed() {
	kept := h.fields[:0]
	for _, f := range h.fields {
		named := false
		for _, name := range h.named {
			named = named || bytes.EqualFold(f.name, name)
		}
		if !named || isForwarded(f.name) {
			kept = append(kept, f)
		}
	}
	h.fields = kept
}

func isForwarded(name []byte) bool {
	for _, f := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if bytes.EqualFold(name, []byte(f)) {
			return true
		}
	}
	return false
}

// has reports whether there is a field of that name that is not empty.
func (h *head) has(name string) bool {
	for _, f := range h.fields {
		if len(f.value) > 0 && bytes.EqualFold(f.name, []byte(name)) {
			return true
		}
	}
	return false
}

// repeatable reports whether a request may be sent again although its service
// may have seen it. A body cannot be: it would have to be kept.
func (h *head) repeatable() bool {
	if h.chunked || h.length > 0 || h.asksUpgrade() {
		return false
	}
	switch string(h.method) {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return h.has("Idempotency-Key")
}

// asksUpgrade reports whether a request asks for an upgrade.
func (h *head) asksUpgrade() bool { return h.upgrades && len(h.upgrade) > 0 }

// persists reports whether the sender of an answer keeps its connection.
func (h *head) persists() bool {
	return !h.closes && (h.minor > 0 || h.keepsAlive)
}

// keeps is how long the sender of an answer says that it keeps an idle
// connection.
func (h *head) keeps() (time.Duration, bool) {
	for _, value := range h.keepAlive {
		for part := range bytes.SplitSeq(value, []byte{','}) {
			name, n, _ := bytes.Cut(part, []byte{'='})
			if !bytes.EqualFold(bytes.TrimSpace(name), []byte("timeout")) {
				continue
			}
			seconds, err := strconv.ParseUint(string(bytes.TrimSpace(n)), 10, 31)
			if err != nil {
				return 0, false
			}
			return time.Duration(seconds) * time.Second, true
		}
	}
	return 0, false
}

// appendFields appends the fields as header lines.
func (h *head) appendFields(b []byte) []byte {
	for _, f := range h.fields {
		b = append(append(append(append(b, f.name...), ": "...), f.value...), "\r\n"...)
	}
	return b
}

// appendTrailerNames appends a Trailer line with the names that may be trailers.
func (h *head) appendTrailerNames(b []byte) []byte {
	sep := "Trailer: "
	for _, value := range h.trailers {
		for name := range bytes.SplitSeq(value, []byte{','}) {
			if name = bytes.Trim(name, " \t"); isToken(name) && mayTrail(name) {
				b = append(append(b, sep...), name...)
				sep = ", "
			}
		}
	}
	if sep == ", " {
		b = append(b, "\r\n"...)
	}
	return b
}
