package redis

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// script is a Lua script and the name by which a server knows it.
type script struct {
	source string
	sha1   string
}

// The scripts, in the files of their names. Those about a host's control socket
// begin with what they share.
var (
	claimScript   = newScript("host", "claim")
	currentScript = newScript("host", "current")
	touchScript   = newScript("touch")
	assertScript  = newScript("host", "assert")
	retireScript  = newScript("host", "retire")
	seenScript    = newScript("host", "seen")

	putScript     = newScript("put")
	dropScript    = newScript("drop")
	listScript    = newScript("list")
	recordsScript = newScript("records")

	indexScript  = newScript("index")
	keepScript   = newScript("keep")
	unkeepScript = newScript("unkeep")
	nodesScript  = newScript("nodes")
	leaseScript  = newScript("lease")
)

// newScript joins embedded files. They are part of the program, so that one
// which is missing is a mistake in this file.
func newScript(names ...string) script {
	var source []byte
	for _, name := range names {
		b, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
		if err != nil {
			panic(fmt.Sprintf("redis: script %s: %v", name, err))
		}
		source = append(source, b...)
	}
	sum := sha1.Sum(source) // what EVALSHA asks for
	return script{source: string(source), sha1: hex.EncodeToString(sum[:])}
}
