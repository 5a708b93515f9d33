package relay_test

import "github.com/dialback/dialback/internal/hostile"

// hostSeeds are dialogues of FuzzHostileHost that go deep: valid ones, and ones
// that break off or go wrong late.
func hostSeeds() [][]byte {
	S, script := hostile.S, hostile.Script
	const v2, v3 = "\x00", "\x01"
	const get, post, slow, ws, connect, head, dial, upgrade = "\x00", "\x01", "\x02", "\x03", "\x04", "\x05", "\x06", "\x07"
	const cut, freeze, mute = "\x00", "\x01", "\x02"
	const aQuarter, twoSeconds, elevenSeconds, aMinute = "\x02", "\x04", "\x06", "\x08"
	const opened, eof, end = `{"type":"stream:opened"}`, `{"type":"stream:eof"}`, `{"type":"http:end"}`
	const ack = `{"type":"stream:ack","ticket":"$T"}`
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	const frame = "\x81\x02hi"
	v2head := `{"type":"http:response","status":200,"headers":{"content-type":"text/plain","set-cookie":"a=b"}}`
	open := func(want string) []hostile.Step {
		return []hostile.Step{S(hostAttach, v3), S(hostText, `{"type":"ping"}`), S(hostAsked, want), S(hostText, ack), S(hostDialBack, ""), S(dataText, opened)}
	}
	with := func(steps []hostile.Step, more ...hostile.Step) []byte { return script(append(steps, more...)...) }
	openV2 := func(want string) []hostile.Step {
		return []hostile.Step{S(hostAttach, v2), S(hostAsked, want), S(hostDialBack, "")}
	}
	return [][]byte{
		// Exchanges of protocol 2: whole, cut short, without an end, wrong.
		with(openV2(get), S(dataText, v2head), S(dataBinary, "body"), S(dataText, end)),
		with(openV2(post), S(dataText, v2head), S(dataBinary, "body"), S(dataClose, "\x03\xe8")),
		with(openV2(slow), S(dataText, v2head), S(dataText, end)),
		with(openV2(get), S(dataBinary, "no head"), S(dataText, end)),
		with(openV2(head), S(dataText, `{"type":"http:response","status":103}`), S(dataText, v2head)),
		with(openV2(get), S(dataText, `{"type":"http:response","status":204,"headers":{"content-length":"5","transfer-encoding":"chunked"}}`), S(dataBinary, "x"), S(dataText, end)),
		with(openV2(get), S(dataText, v2head), S(dataCut, freeze)),
		with(openV2(get), S(hostPause, aMinute), S(dataText, v2head)),
		// WebSockets of protocol 2.
		with(openV2(ws), S(dataText, "hello"), S(dataBinary, "bytes"), S(dataClose, "\x0f\xa1bye")),
		with(openV2(ws), S(dataRaw, "\x01\x82\x00\x00\x00\x00he\x80\x83\x00\x00\x00\x00llo"), S(dataCut, cut)),
		with(openV2(ws), S(dataRaw, "\x83\x80\x00\x00\x00\x00"), S(dataCut, mute)),
		with(openV2(ws), S(dataRaw, "\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00x")),
		// Exchanges of an agent: kept, used again, unasked bytes, bad answers.
		with(open(get), S(dataBinary, ok), S(hostAsked, get), S(dataBinary, ok), S(hostPause, aQuarter), S(hostAsked, post), S(dataBinary, ok)),
		with(open(get), S(dataBinary, ok+ok), S(hostAsked, get)),
		with(open(get), S(dataBinary, "HTTP/1.1 103 Early\r\nLink: <x>\r\n\r\n"+ok)),
		with(open(get), S(dataBinary, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-T: y\r\n\r\n")),
		with(open(get), S(dataBinary, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n")),
		with(open(get), S(dataBinary, "HTTP/1.1 099 No\r\n\r\n")),
		with(open(get), S(dataBinary, "HTTP/1.0 200 OK\r\n\r\nuntil the end"), S(dataText, eof)),
		with(open(slow), S(dataBinary, ok), S(hostAsked, get)),
		with(open(post), S(dataBinary, "HTTP/1.1 413 Large\r\nConnection: close\r\n\r\n"), S(dataClose, "\x03\xe8")),
		with(open(get), S(dataText, `{"type":"stream:eof","type":"x"}`)),
		with(open(get), S(dataBinary, ok), S(dataCut, freeze), S(hostPause, aQuarter), S(hostAsked, get)),
		with(open(get), S(dataBinary, ok), S(dataCut, mute), S(hostPause, aQuarter), S(hostAsked, post)),
		// Upgrades of an agent.
		with(open(ws), S(dataBinary, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"+frame), S(dataBinary, "\x88\x02\x03\xe8"), S(dataText, eof)),
		with(open(upgrade), S(dataBinary, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\n\r\nbytes"), S(dataClose, "\x03\xf3")),
		with(open(upgrade), S(dataBinary, ok)),
		// Byte streams.
		with(open(connect), S(dataBinary, "SSH-2.0-x"), S(dataText, eof), S(dataClose, "\x03\xe8")),
		with(open(connect), S(dataBinary, "x"), S(dataText, "no eof")),
		with(open(dial), S(dataBinary, "hi"), S(dataText, eof), S(dataCut, cut)),
		// Spares: the newest ticket is one's as soon as the host is in use.
		with(open(connect), S(dataBinary, "x"), S(hostText, ack), S(hostDialBack, ""), S(hostAsked, connect), S(dataText, opened), S(dataBinary, "hi")),
		with(open(get), S(dataBinary, ok), S(hostText, ack), S(hostDialBack, ""), S(hostAsked, dial), S(dataText, `{"type":"stream:refuse","status":503,"reason":"already-open"}`)),
		with(open(dial), S(hostText, ack), S(hostDialBack, ""), S(dataText, opened), S(hostAsked, connect)),
		with(open(connect), S(hostText, ack), S(hostDialBack, ""), S(hostAsked, upgrade), S(hostPause, twoSeconds), S(hostText, ack), S(hostDialBack, ""), S(dataText, opened), S(dataBinary, ok)),
		with(open(connect), S(hostText, ack), S(hostDialBack, ""), S(dataCut, freeze), S(hostAsked, connect), S(hostPause, elevenSeconds)),
		with(open(connect), S(hostText, `{"type":"stream:refuse","ticket":"$T","status":502,"reason":"no spares"}`), S(hostAsked, connect)),
		// Refusals, and dials that come to nothing.
		script(S(hostAttach, v3), S(hostAsked, get), S(hostText, `{"type":"stream:refuse","ticket":"$T","status":404,"reason":"no\nsuch"}`)),
		script(S(hostAttach, v3), S(hostAsked, connect), S(hostDialBack, ""), S(dataText, `{"type":"stream:refuse","status":502,"reason":"down"}`), S(dataClose, "\x03\xe8")),
		script(S(hostAttach, v3), S(hostAsked, dial), S(hostPause, twoSeconds), S(hostCut, mute), S(hostPause, elevenSeconds)),
		script(S(hostAttach, v3), S(hostAsked, get), S(hostCut, freeze), S(hostPause, elevenSeconds), S(hostAttach, v3), S(hostAsked, get)),
		script(S(hostAttach, v2), S(hostAsked, get), S(hostAttach, v2), S(hostDialBack, ""), S(dataText, v2head), S(dataText, end)),
		script(S(hostAttach, v3), S(hostAsked, get), S(hostDialBack, ""), S(hostDialBack, ""), S(dataText, opened), S(hostDialAny, "hostId=evil&ticket=a.b.c")),
		script(S(hostAttach, v2), S(hostAsked, ws), S(hostCut, cut), S(hostDialBack, "")),
		// The control socket.
		script(S(hostAttach, v3), S(hostText, `{"op":"ping"}`), S(hostText, `{"type":"stream:ack","ticket":"`), S(hostText, `[[[[`), S(hostRaw, "\x82\x81\x00\x00\x00\x00x"), S(hostText, `{"type":"ping"}`)),
		script(S(hostAttach, v2), S(hostRaw, "\xc1\x80\x00\x00\x00\x00")),
		script(S(hostAttach, v2), S(hostRaw, "\x81\xff\x00\x00\x00\x00\x00\x01\x00\x01\x00\x00\x00\x00")),
		script(S(hostAttach, v3), S(hostClose, "\x03\xecbad"), S(hostAsked, get)),
		script(S(hostAttach, v3), S(hostPause, "\x09"), S(hostAsked, get)),
		script(S(hostAttach, v2), S(hostAttach, v3), S(hostAttach, v2), S(hostAttach, v3), S(hostAttach, v2), S(hostAttach, v3), S(hostAttach, v2), S(hostAsked, get)),
	}
}
