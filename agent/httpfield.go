package agent

import "bytes"

// parseTrailers parses a trailer section, which ends with its empty line. What
// must not be a trailer (RFC 9110, section 6.5.1) is dropped.
func (h *head) parseTrailers(p []byte) error {
	h.reset()
	if bytes.Count(p, []byte("\n")) != bytes.Count(p, []byte("\r\n")) {
		return errField
	}
	unfold(p)
	for {
		f, rest, err := cutField(p)
		if err != nil {
			return err
		}
		if f.name == nil {
			return nil
		}
		p = rest
		if mayTrail(f.name) {
			h.fields = append(h.fields, f)
		}
	}
}

// mayTrail reports whether a field of that name may be a trailer: not one of
// framing, routing, authentication or content.
func mayTrail(name []byte) bool {
	var lower [24]byte
	if len(name) > len(lower) {
		return true
	}
	n := toLower(lower[:], name)
	switch string(n) {
	case "authorization", "cache-control", "connection", "content-encoding", "content-length", "content-range",
		"content-type", "dialback-error", "expect", "host", "keep-alive", "max-forwards", "pragma",
		"proxy-authenticate", "proxy-authorization", "proxy-connection", "range", "realm", "te", "trailer",
		"transfer-encoding", "upgrade", "www-authenticate":
		return false
	}
	return !bytes.HasPrefix(n, []byte("if-"))
}

// cutField cuts the first field from p. It has no name at the empty line that
// ends them.
func cutField(p []byte) (f field, rest []byte, err error) {
	line, rest := cutLine(p)
	if len(line) == 0 {
		return field{}, rest, nil
	}
	name, value, ok := bytes.Cut(line, []byte{':'})
	value = bytes.Trim(value, " \t")
	if !ok || !isToken(name) || !isFieldValue(value) {
		return field{}, nil, errField
	}
	return field{name, value}, rest, nil
}

// cutLine cuts the first line from p, without its end.
func cutLine(p []byte) (line, rest []byte) {
	i := bytes.IndexByte(p, '\n')
	if i < 0 {
		return p, nil
	}
	line = p[:i]
	if i > 0 && p[i-1] == '\r' {
		line = p[:i-1]
	}
	return line, p[i+1:]
}

// unfold makes spaces of the line ends within folded lines.
func unfold(p []byte) {
	for at := 0; ; {
		i := bytes.IndexByte(p[at:], '\n')
		if i < 0 || at+i+1 == len(p) {
			return
		}
		at += i + 1
		if p[at] != ' ' && p[at] != '\t' {
			continue
		}
		p[at-1] = ' '
		if at >= 2 && p[at-2] == '\r' {
			p[at-2] = ' '
		}
	}
}

// listHas reports whether a comma-separated list has that member, whatever its
// parameters.
func listHas(list []byte, member string) bool {
	for m := range bytes.SplitSeq(list, []byte{','}) {
		m, _, _ = bytes.Cut(m, []byte{';'})
		if bytes.EqualFold(bytes.Trim(m, " \t"), []byte(member)) {
			return true
		}
	}
	return false
}

// toLower writes p in lower case to b, which has room.
func toLower(b, p []byte) []byte {
	for i, c := range p {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		b[i] = c
	}
	return b[:len(p)]
}

// tokenBytes are the bytes of names (RFC 9110, section 5.6.2).
var tokenBytes = [256]bool{
	'!': true, '#': true, '$': true, '%': true, '&': true, '\'': true, '*': true, '+': true, '-': true, '.': true,
	'^': true, '_': true, '`': true, '|': true, '~': true,
	'0': true, '1': true, '2': true, '3': true, '4': true, '5': true, '6': true, '7': true, '8': true, '9': true,
	'A': true, 'B': true, 'C': true, 'D': true, 'E': true, 'F': true, 'G': true, 'H': true, 'I': true, 'J': true,
	'K': true, 'L': true, 'M': true, 'N': true, 'O': true, 'P': true, 'Q': true, 'R': true, 'S': true, 'T': true,
	'U': true, 'V': true, 'W': true, 'X': true, 'Y': true, 'Z': true,
	'a': true, 'b': true, 'c': true, 'd': true, 'e': true, 'f': true, 'g': true, 'h': true, 'i': true, 'j': true,
	'k': true, 'l': true, 'm': true, 'n': true, 'o': true, 'p': true, 'q': true, 'r': true, 's': true, 't': true,
	'u': true, 'v': true, 'w': true, 'x': true, 'y': true, 'z': true,
}

func isToken(p []byte) bool {
	for _, c := range p {
		if !tokenBytes[c] {
			return false
		}
	}
	return len(p) > 0
}

// isFieldValue reports whether p may be a field's value: no control characters
// but tabs.
func isFieldValue(p []byte) bool {
	for _, c := range p {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
