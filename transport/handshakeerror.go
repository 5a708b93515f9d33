package transport

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// HandshakeError is a dial that the server answered with something else than
// an upgrade.
type HandshakeError struct {
	Status     int
	RetryAfter time.Duration // of the Retry-After header, a day at most; zero if none
	Code       string        // error.code of the JSON body; empty if none
	Message    string        // error.message of the JSON body
}

// Error tells the status and what the server said about it.
func (e *HandshakeError) Error() string {
	s := fmt.Sprintf("transport: the server answered %d instead of an upgrade", e.Status)
	if e.Code != "" {
		s += " (" + e.Code + ")"
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// maxAnswer bounds what is read of the body of a refused handshake, in bytes.
const maxAnswer = 4 << 10

// readAnswer makes a HandshakeError of an answer, and reads its body.
func readAnswer(resp *http.Response) *HandshakeError {
	e := &HandshakeError{Status: resp.StatusCode, RetryAfter: retryAfter(resp.Header.Get("Retry-After"))}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	_ = resp.Body.Close()
	resp.Body = http.NoBody
	var j struct {
		Error struct{ Code, Message string }
	}
	if json.Unmarshal(body, &j) == nil {
		e.Code, e.Message = j.Error.Code, j.Error.Message
	}
	return e
}

// retryAfter parses a Retry-After header, in seconds or as a date. It is a day
// at most.
func retryAfter(s string) time.Duration {
	const most = 24 * time.Hour
	if n, err := strconv.ParseUint(s, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(n, uint64(most/time.Second))) * time.Second
	}
	if t, err := http.ParseTime(s); err == nil {
		return min(max(time.Until(t), 0), most)
	}
	return 0
}

// failure is the error of a dial that failed with err.
func (h *handshake) failure(err error, u *url.URL, header http.Header) error {
	if a := h.answer; a != nil {
		a.Code, a.Message = scrub(a.Code, u, header), scrub(a.Message, u, header)
		return a
	}
	if end := h.ctx.Err(); end != nil {
		err = end
	}
	var ue *url.Error
	if errors.As(err, &ue) { // its text has the URL
		err = ue.Err
	}
	text := err.Error()
	// net/http and the WebSocket library quote what they cannot read: any bytes
	// of the server's, which are not for a log. Without a connection there are
	// none.
	if h.nc != nil && (strings.Contains(text, `"`) || scrub(text, u, header) != text) {
		err = errors.New("the server's answer cannot be read")
	}
	return fmt.Errorf("transport: dial %s: %w", u.Host, err)
}

// scrub returns s, or a placeholder if s quotes what may be a secret: a server
// can send back whatever it was sent.
func scrub(s string, u *url.URL, header http.Header) string {
	for _, secret := range secrets(u, header) {
		if strings.Contains(s, secret) {
			return "(not shown, since it quotes the request)"
		}
	}
	return s
}

// minSecret is how long a value must be, in bytes, to be taken for a secret:
// shorter ones are a part of many a text.
const minSecret = 8

// secrets returns what may be secret of a request for u with header: the query,
// its parameters as they are and as they were escaped, the credentials of the
// URL, and the words of the header's values.
func secrets(u *url.URL, header http.Header) []string {
	var values []string
	for param := range strings.SplitSeq(u.RawQuery, "&") {
		name, escaped, _ := strings.Cut(param, "=")
		if name == "hostId" { // no secret, and what many an answer is about
			continue
		}
		values = append(values, escaped)
		if v, err := url.QueryUnescape(escaped); err == nil {
			values = append(values, v)
		}
	}
	if u.User != nil { // http.Client makes a header of them
		password, _ := u.User.Password()
		user := u.User.Username()
		values = append(values, user, password, base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
	}
	for _, vs := range header {
		for _, v := range vs {
			values = append(values, strings.Fields(v)...)
		}
	}
	values = slices.DeleteFunc(values, func(v string) bool { return len(v) < minSecret })
	if u.RawQuery != "" {
		values = append(values, u.RawQuery)
	}
	return values
}
