package agent_test

import "github.com/dialback/dialback/internal/hostile"

// relaySeeds are dialogues of FuzzHostileRelay that go deep.
func relaySeeds() [][]byte {
	S, script := hostile.S, hostile.Script
	const cut, freeze, mute = "\x00", "\x01", "\x02"
	const aQuarter, twoSeconds, aMinute = "\x02", "\x04", "\x08"
	hello := S(relayText, `{"type":"hello","node":"n","generation":7}`)
	dial := func(service, proto string) hostile.Step {
		return S(relayText, `{"type":"stream:dial","ticket":"$T","kind":"tcp","generation":7,"stream":"s","service":"`+service+`","proto":"`+proto+`"}`)
	}
	web := []hostile.Step{hello, dial("", "http")}
	with := func(steps []hostile.Step, more ...hostile.Step) []byte {
		return script(append(steps[:len(steps):len(steps)], more...)...)
	}
	get := "GET /a%2e?b HTTP/1.1\r\nHost: x\r\n\r\n"
	return [][]byte{
		// HTTP streams: requests as a relay sends them, and others.
		with(web, S(streamBytes, get), S(streamBytes, get), S(relayPause, aQuarter), S(streamBytes, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbo"), S(streamBytes, "dy")),
		with(web, S(streamBytes, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n3\r\nabc\r\n"), S(streamBytes, "0\r\nA: b\r\n\r\n"+get)),
		with(web, S(streamBytes, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"+get)),
		with(web, S(streamBytes, "GET /../../etc HTTP/1.1\r\nHost: x\r\n\r\n"), S(streamBytes, "GET /%2e%2e/x HTTP/1.1\r\nHost: x\r\n\r\n"), S(streamBytes, "GET http://evil:80/x HTTP/1.1\r\nHost: evil\r\n\r\n"), S(streamBytes, "GET //evil/x HTTP/1.1\r\nHost: evil\r\n\r\n")),
		with(web, S(streamBytes, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"), S(streamBytes, "CONNECT evil:80 HTTP/1.1\r\nHost: evil:80\r\n\r\n")),
		with(web, S(streamBytes, "PUT / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"), S(streamBytes, "abc")),
		with(web, S(streamBytes, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 400\r\n\r\npart"), S(streamClose, "\x03\xe9left")),
		with(web, S(streamBytes, "GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n folded\r\nConnection: close, A\r\n\r\n"), S(streamText, `{"type":"stream:eof"}`)),
		with(web, S(streamBytes, "G"), S(streamBytes, "ET / HTTP/1.0\r\n"), S(streamBytes, "\r\n")),
		with(web, S(streamText, "no frame")),
		with(web, S(streamRaw, "\x02\x03GET\x80\x01 "), S(streamRaw, "\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff")),
		// What the service answers.
		with(web, S(localAnswer, "HTTP/1.1 103 Early\r\nLink: <x>\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n2\r\nok\r\n0\r\nA: b\r\n\r\n"), S(streamBytes, get), S(streamBytes, get)),
		with(web, S(localAnswer, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nKeep-Alive: timeout=5\r\n\r\nokHTTP/1.1 200 OK\r\n\r\nunasked"), S(streamBytes, get), S(streamBytes, get)),
		with(web, S(localAnswer, "HTTP/1.1 099 No\r\n\r\n"), S(streamBytes, get), S(localAnswer, "HTTP/1.1 101 Switching\r\n\r\n"), S(streamBytes, get), S(localAnswer, "SSH-2.0\r\n\r\n"), S(streamBytes, get)),
		with(web, S(localAnswer, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"), S(streamBytes, get), S(relayPause, aMinute)),
		with(web, S(localAnswer, "HTTP/1.1 101 Switching\r\nUpgrade: other\r\nConnection: Upgrade\r\n\r\nhi"), S(streamBytes, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\nearly"), S(streamBytes, "more"), S(streamText, `{"type":"stream:eof"}`)),
		with(web, S(localAnswer, ""), S(streamBytes, get), S(relayPause, aMinute), S(streamCut, freeze)),
		// Byte streams.
		script(hello, dial("raw", "raw"), S(streamBytes, "echo"), S(streamText, `{"type":"stream:eof"}`), S(streamClose, "\x03\xe8")),
		script(hello, dial("tcp", "raw"), S(streamBytes, "echo"), S(streamCut, cut)),
		script(hello, dial("tcp", "raw"), S(streamBytes, "x"), S(streamCut, mute), S(streamClose, "\x0f\xa0")),
		// Spares.
		script(hello, S(relayText, `{"type":"stream:dial","ticket":"$T","kind":"spare","generation":7}`), S(streamText, `{"type":"stream:open","stream":"s","service":"raw","proto":"raw"}`), S(streamBytes, "early")),
		script(hello, S(relayText, `{"type":"stream:dial","ticket":"$T","kind":"spare","generation":7}`), S(streamText, `{"type":"stream:open","stream":"s","service":"none","proto":"raw"}`)),
		script(hello, S(relayText, `{"type":"stream:dial","ticket":"$T","kind":"spare","generation":7}`), S(streamBytes, "no frame"), S(relayText, `{"type":"hello","generation":8}`)),
		// Dials that are refused, repeated, cancelled.
		script(hello, dial("none", "raw"), dial("", "raw"), dial("raw", "raw"), dial("raw", "raw"), S(relayText, `{"type":"stream:cancel","ticket":"$T"}`)),
		script(hello, S(relayText, `{"type":"stream:dial","ticket":"$T","kind":"ws","path":"/","query":"","generation":6}`)),
		script(hello, S(relayAnswer, "HTTP/1.1 404 No\r\n\r\n"), dial("raw", "raw")),
		script(hello, S(relayAnswer, "HTTP/1.1 503 No\r\nRetry-After: 99999999\r\nContent-Length: 60\r\n\r\n"+`{"error":{"code":"$T","message":"agent-token-1d9c33a0b7"}}`), S(relayCut, cut), S(relayPause, twoSeconds)),
		script(S(relayAnswer, "HTTP/1.1 301 Moved\r\nLocation: http://evil:80/?token=x\r\n\r\n"), S(relayCut, cut), S(relayPause, twoSeconds)),
		script(S(relayAnswer, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n"), S(relayCut, cut), S(relayPause, twoSeconds)),
		// The control socket.
		script(hello, S(relayText, `{"type":"drain","reconnectAfterMs":99999999999}`), S(relayText, `{"type":"pong"}`), S(relayText, "[[[["), S(relayRaw, "\x82\x01x")),
		script(hello, S(relayRaw, "\x81\x7f\x00\x00\x00\x00\x7f\xff\xff\xff")),
		script(hello, S(relayClose, "\x11\x39replaced"), S(relayPause, twoSeconds), S(relayClose, "\x11\x33"), S(relayPause, aMinute)),
		script(hello, S(relayCut, freeze), S(relayPause, "\x09")),
	}
}
