package transport

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// encoding/json matches names without regard to case and takes the last of two
// equal names, so frames are taken apart here. All but nestedTooDeep rely on
// json.Valid having passed the text.

// nestedTooDeep reports whether brackets are nested deeper than maxNesting. It
// takes any text.
func nestedTooDeep(p []byte) bool {
	depth := 0
	for i := 0; i < len(p); i++ {
		switch p[i] {
		case '"':
			i = endOfString(p, i) - 1
		case '{', '[':
			if depth++; depth > maxNesting {
				return true
			}
		case '}', ']':
			depth--
		}
	}
	return false
}

// eachMember calls f for the members of a valid object, until f fails.
func eachMember(p []byte, f func(member) error) error {
	i := skipSpace(p, 1)
	for p[i] != '}' {
		end := endOfString(p, i)
		name := p[i+1 : end-1]
		if bytes.IndexByte(name, '\\') >= 0 || !utf8.Valid(name) {
			name = []byte(unquote(p[i:end]))
		}
		i = skipSpace(p, skipSpace(p, end)+1) // past the colon
		end = endOfValue(p, i)
		if err := f(member{name: name, value: p[i:end]}); err != nil {
			return err
		}
		if i = skipSpace(p, end); p[i] == ',' {
			i = skipSpace(p, i+1)
		}
	}
	return nil
}

func skipSpace(p []byte, i int) int {
	for i < len(p) && (p[i] == ' ' || p[i] == '\t' || p[i] == '\r' || p[i] == '\n') {
		i++
	}
	return i
}

// endOfString returns the index after the string that begins at i; at most
// len(p), should it not end.
func endOfString(p []byte, i int) int {
	for i++; i < len(p); i++ {
		switch p[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(p)
}

// endOfValue returns the index after the value that begins at i.
func endOfValue(p []byte, i int) int {
	depth := 0
	for i < len(p) {
		switch p[i] {
		case '"':
			if i = endOfString(p, i); depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // the end of the object around a number or a word
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return i
}

// unquote decodes a valid JSON string. Half a surrogate pair, and bytes that
// are not UTF-8, become U+FFFD.
func unquote(raw []byte) string {
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return string(inner)
	}
	var s string
	_ = json.Unmarshal(raw, &s) // cannot fail: the text is valid
	return s
}
