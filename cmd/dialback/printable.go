package main

import (
	"strings"
	"unicode"
)

// printable is a line in which others may have a word, such as a host that gives
// a reason, without what a terminal would obey or a reader not see.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}
