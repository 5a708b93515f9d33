package transport

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxNesting is how deep a frame may be nested. The frames of this version need
// two levels; the rest is room for what is to be ignored.
const maxNesting = 32

// encoder writes the JSON object of one frame.
type encoder struct{ buf []byte }

// begin opens the object with its type, or with op in place of "type".
func (e *encoder) begin(f Frame, op bool) {
	if op {
		e.buf = append(e.buf, `{"op":"`...)
	} else {
		e.buf = append(e.buf, `{"type":"`...)
	}
	e.buf = append(e.buf, f.frameType()...)
	e.buf = append(e.buf, '"')
}

func (e *encoder) finish() []byte { return append(e.buf, '}') }

func (e *encoder) name(name string) {
	e.buf = append(e.buf, ',', '"')
	e.buf = append(e.buf, name...)
	e.buf = append(e.buf, '"', ':')
}

func (e *encoder) str(name, value string) {
	e.name(name)
	e.buf = appendString(e.buf, value)
}

func (e *encoder) strUnlessEmpty(name, value string) {
	if value != "" {
		e.str(name, value)
	}
}

func (e *encoder) uint(name string, value uint64) {
	e.name(name)
	e.buf = strconv.AppendUint(e.buf, value, 10)
}

func (e *encoder) headers(name string, values map[string]string) {
	e.name(name)
	e.buf = append(e.buf, '{')
	for i, key := range slices.Sorted(maps.Keys(values)) {
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		e.buf = appendString(e.buf, key)
		e.buf = append(e.buf, ':')
		e.buf = appendString(e.buf, bytesToText(values[key]))
	}
	e.buf = append(e.buf, '}')
}

// appendString appends s as a JSON string, without the escapes for HTML that
// encoding/json makes of &, < and >.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			var buf bytes.Buffer
			enc := json.NewEncoder(&buf)
			enc.SetEscapeHTML(false)
			_ = enc.Encode(s) // a string can always be encoded
			return append(b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// decoder holds the members of one frame that the protocol knows. Its err is
// the first rule that was broken.
type decoder struct {
	members []member
	err     error
}

// member is one name and value of a JSON object. The value is not decoded; both
// may be parts of the text.
type member struct{ name, value []byte }

// known reports whether a member means something in any frame.
func known(name []byte) bool {
	switch string(name) {
	case "type", "op", "ticket", "kind", "path", "query", "generation", "stream", "service", "proto",
		"status", "reason", "node", "reconnectAfterMs", "method", "headers":
		return true
	}
	return false
}

// collect keeps the known members of a valid JSON object.
func (d *decoder) collect(p []byte) error {
	return eachMember(p, func(m member) error {
		if !known(m.name) {
			return nil
		}
		for _, earlier := range d.members {
			if bytes.Equal(earlier.name, m.name) {
				return fmt.Errorf("%w: %s appears twice", ErrMalformed, m.name)
			}
		}
		d.members = append(d.members, m)
		return nil
	})
}

// raw returns the value of a member; nil if it is absent or null.
func (d *decoder) raw(name string) []byte {
	for _, m := range d.members {
		if string(m.name) == name && string(m.value) != "null" {
			return m.value
		}
	}
	return nil
}

func (d *decoder) fail(name, rule string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s %s", ErrMalformed, name, rule)
	}
}

// name is the type of the frame, or its op if there is no type; empty if it has
// neither as a string.
func (d *decoder) name() (name string, op bool) {
	value := d.raw("type")
	if value == nil {
		value, op = d.raw("op"), true
	}
	if value == nil || value[0] != '"' {
		return "", false
	}
	return unquote(value), op
}

func (d *decoder) required(name string) string {
	s := d.optional(name)
	if s == "" {
		d.fail(name, "is missing")
	}
	return s
}

func (d *decoder) optional(name string) string {
	value := d.raw(name)
	if value == nil {
		return ""
	}
	if value[0] != '"' {
		d.fail(name, "is not a string")
		return ""
	}
	return unquote(value)
}

// uint reads an integer in digits: neither 1e3 nor 1.0 nor "1".
func (d *decoder) uint(name string, required bool) uint64 {
	value := d.raw(name)
	if value == nil {
		if required {
			d.fail(name, "is missing")
		}
		return 0
	}
	n, err := strconv.ParseUint(string(value), 10, 64)
	if err != nil {
		d.fail(name, "is not an integer of 64 bits, or negative")
	}
	return n
}

func (d *decoder) millis(name string) int64 {
	n := d.uint(name, false)
	if int64(n) < 0 {
		d.fail(name, "is not a number of milliseconds")
	}
	return int64(n)
}

func (d *decoder) status(name string) int {
	n := d.uint(name, true)
	if n < 100 || n > 999 {
		d.fail(name, "is not a status from 100 to 999")
	}
	return int(n)
}

// refusal reads the status of a refusal; any number, or none, will do.
func (d *decoder) refusal(name string) int {
	value := d.raw(name)
	if value != nil && value[0] != '-' && (value[0] < '0' || value[0] > '9') {
		d.fail(name, "is not a number")
	}
	n, _ := strconv.Atoi(string(value)) // what is no int becomes 502
	return n
}

// headers reads an object of strings. A name that appears twice is an error:
// readers differ in which of the two counts.
func (d *decoder) headers(name string) map[string]string {
	value := d.raw(name)
	if value == nil {
		return nil
	}
	if value[0] != '{' {
		d.fail(name, "is not an object")
		return nil
	}
	var headers map[string]string
	_ = eachMember(value, func(m member) error {
		key := string(m.name)
		if _, twice := headers[key]; twice {
			d.fail(name, "has a header twice")
		}
		if m.value[0] != '"' {
			d.fail(name, "has a value that is not a string")
			return d.err
		}
		if headers == nil {
			headers = make(map[string]string)
		}
		headers[key] = textToBytes(unquote(m.value))
		return d.err
	})
	return headers
}

// clean applies the rules of Refuse.
func (f Refuse) clean() Refuse {
	switch f.Status {
	case 403, 404, 429, 503:
	default:
		f.Status = 502
	}
	f.Reason = CutReason(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r // U+FFFD for what is not UTF-8
	}, f.Reason))
	return f
}

// bytesToText makes each byte one code point, as fetch does with headers; thus
// header values that are not UTF-8 survive JSON.
func bytesToText(s string) string {
	if isASCII(s) {
		return s
	}
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return string(runes)
}

// textToBytes is the reverse of bytesToText. A code point above U+00FF, which
// is no byte, stays UTF-8.
func textToBytes(s string) string {
	if isASCII(s) {
		return s
	}
	b := make([]byte, 0, len(s))
	for _, r := range s {
		if r <= 0xFF {
			b = append(b, byte(r))
		} else {
			b = utf8.AppendRune(b, r)
		}
	}
	return string(b)
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
