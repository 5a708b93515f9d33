package transport_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dialback/dialback/transport"
)

// frames has one case per frame and spelling: what Encode writes and Decode
// reads.
var frames = []struct {
	name  string
	frame transport.Frame
	text  string
}{
	{"ping", transport.Ping{}, `{"type":"ping"}`},
	{"ping in the other spelling", transport.Ping{Op: true}, `{"op":"ping"}`},
	{"pong", transport.Pong{}, `{"type":"pong"}`},
	{"pong in the other spelling", transport.Pong{Op: true}, `{"op":"pong"}`},
	{
		"v2 dial without fields of proto 3",
		transport.StreamDial{Ticket: "a.b.c", Kind: transport.KindHTTP},
		`{"type":"stream:dial","ticket":"a.b.c","kind":"http","path":"","query":""}`,
	},
	{
		"dial of proto 3",
		transport.StreamDial{
			Ticket: "a.b.c", Kind: transport.KindTCP, Path: "/x%20y", Query: "a=1&b=<>",
			Generation: 1764451200000001, Stream: "s1", Service: "ssh", Proto: transport.ProtoRaw,
		},
		`{"type":"stream:dial","ticket":"a.b.c","kind":"tcp","path":"/x%20y","query":"a=1&b=<>",` +
			`"generation":1764451200000001,"stream":"s1","service":"ssh","proto":"raw"}`,
	},
	{
		"refusal of a dial",
		transport.Refuse{Ticket: "a.b.c", Status: 404, Reason: `no "x"`},
		`{"type":"stream:refuse","ticket":"a.b.c","status":404,"reason":"no \"x\""}`,
	},
	{
		"refusal as a first frame",
		transport.Refuse{Status: 502, Reason: "verbindung weigerte sich – 拒否"},
		`{"type":"stream:refuse","status":502,"reason":"verbindung weigerte sich – 拒否"}`,
	},
	{"ack", transport.Ack{Ticket: "a.b.c"}, `{"type":"stream:ack","ticket":"a.b.c"}`},
	{"cancel", transport.Cancel{Ticket: "a.b.c"}, `{"type":"stream:cancel","ticket":"a.b.c"}`},
	{"hello", transport.Hello{Node: "a", Generation: 7}, `{"type":"hello","node":"a","generation":7}`},
	{"hello of an unnamed node", transport.Hello{Generation: 7}, `{"type":"hello","node":"","generation":7}`},
	{"drain", transport.Drain{ReconnectAfterMs: 1500}, `{"type":"drain","reconnectAfterMs":1500}`},
	{
		"open",
		transport.StreamOpen{Stream: "s1", Service: "ssh", Proto: transport.ProtoRaw},
		`{"type":"stream:open","stream":"s1","service":"ssh","proto":"raw"}`,
	},
	{
		"open of the default service",
		transport.StreamOpen{Stream: "s1", Proto: transport.ProtoHTTP},
		`{"type":"stream:open","stream":"s1","proto":"http"}`,
	},
	{"opened", transport.Opened{}, `{"type":"stream:opened"}`},
	{"eof", transport.EOF{}, `{"type":"stream:eof"}`},
	{
		"request",
		transport.HTTPRequest{Method: "GET", Path: "/a?b=c", Headers: map[string]string{"b": "2", "a": "1"}},
		`{"type":"http:request","method":"GET","path":"/a?b=c","headers":{"a":"1","b":"2"}}`,
	},
	{
		"response without headers",
		transport.HTTPResponse{Status: 204},
		`{"type":"http:response","status":204,"headers":{}}`,
	},
	{
		"header values are bytes",
		transport.HTTPResponse{Status: 200, Headers: map[string]string{"x": "caf\xe9 \xe2\x82\xac"}},
		"{\"type\":\"http:response\",\"status\":200,\"headers\":{\"x\":\"café â\u0082¬\"}}",
	},
	{"end", transport.HTTPEnd{}, `{"type":"http:end"}`},
}

func TestEncode(t *testing.T) {
	for _, c := range frames {
		t.Run(c.name, func(t *testing.T) {
			if got := string(transport.Encode(c.frame)); got != c.text {
				t.Errorf("Encode(%#v)\n got %s\nwant %s", c.frame, got, c.text)
			}
		})
	}
	if got := string(transport.Encode(&transport.Ping{})); got != `{"type":"ping"}` {
		t.Errorf("Encode of a pointer = %s, want it to be as of the value", got)
	}
}

func TestDecode(t *testing.T) {
	for _, c := range frames {
		t.Run(c.name, func(t *testing.T) { wantFrame(t, c.text, c.frame) })
	}
}

func wantFrame(t *testing.T, text string, want transport.Frame) {
	t.Helper()
	got, err := transport.Decode([]byte(text))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Decode(%s)\n got %#v, %v\nwant %#v", text, got, err, want)
	}
}

func TestReadFrame(t *testing.T) {
	for _, c := range []struct {
		name string
		typ  transport.MessageType
		text string
		want transport.Frame
		err  error
	}{
		{"a frame", transport.Text, `{"type":"stream:opened"}`, transport.Opened{}, nil},
		{"binary", transport.Binary, `{"type":"stream:opened"}`, nil, transport.ErrUnknownFrame},
		{"no frame", transport.Text, `hello`, nil, transport.ErrUnknownFrame},
		{"too large", transport.Text, padded(transport.MaxControlFrame + 1), nil, transport.ErrMalformed},
	} {
		a, b := transport.Pipe(&transport.Options{ReadLimit: -1})
		go a.Write(c.typ, []byte(c.text))
		if f, err := transport.ReadFrame(b); f != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %#v, %v; want %#v, %v", c.name, f, err, c.want, c.err)
		}
		a.CloseNow()
		if c.err == nil {
			if _, err := transport.ReadFrame(b); transport.CloseCodeOf(err) != transport.CloseAbnormal {
				t.Errorf("after the end: %v", err)
			}
		}
		b.CloseNow()
		<-a.Done()
		<-b.Done()
	}
}

func TestDecode_Tolerates(t *testing.T) {
	cases := []struct{ why, text string }{
		{"white space", " \r\n\t{ \"type\" : \"ping\" } \n"},
		{"escapes are spellings of the same", `{"t\u0079pe":"pin\u0067"}`},
		{"unknown members", `{"a":[{"type":"x"},"]}\""],"type":"ping","z":{"type":"pong"}, "n":-1.5e3 , "t":true}`},
		{"members of other frames, of any type", `{"type":"ping","ticket":{},"headers":1}`},
		{"an op beside a type", `{"op":"pong","type":"ping"}`},
		{"unknown members that appear twice", `{"x":1,"type":"ping","x":2}`},
		{"another case is another name", `{"Type":"pong","TYPE":"x","type":"ping"}`},
		{"nesting that is not too deep", `{"type":"ping","x":` + nested(31) + `}`},
		{"as large as may be", padded(transport.MaxControlFrame)},
	}
	for _, c := range cases {
		t.Run(c.why, func(t *testing.T) { wantFrame(t, c.text, transport.Ping{}) })
	}
	wantFrame(t, `{"type":"stream:dial","ticket":"t","kind":"later","service":null}`,
		transport.StreamDial{Ticket: "t", Kind: "later"})
	wantFrame(t, `{"type":"http:response","status":200,"headers":null}`, transport.HTTPResponse{Status: 200})
	wantFrame(t, `{"type":"http:response","status":200}`, transport.HTTPResponse{Status: 200})
	wantFrame(t, `{"type":"drain"}`, transport.Drain{})
	wantFrame(t, `{"type":"stream:ack","ticket":"a\ud800b"}`, transport.Ack{Ticket: "a\ufffdb"})
	wantFrame(t, "{\"type\":\"stream:ack\",\"ticket\":\"a\xffb\"}", transport.Ack{Ticket: "a\ufffdb"})
	wantFrame(t, `{"type":"http:request","method":"GET","path":"/","headers":{"a":"1","A":"2","b":"\u20ac"}}`,
		transport.HTTPRequest{Method: "GET", Path: "/", Headers: map[string]string{"a": "1", "A": "2", "b": "€"}})
}

func TestDecode_Unknown(t *testing.T) {
	for _, text := range []string{
		``, ` `, `ping`, `null`, `"ping"`, `5`, `true`, `[]`, `[{"type":"ping"}]`,
		`{}`, `{"type":""}`, `{"type":null}`, `{"type":5}`, `{"type":["ping"]}`, `{"type":{}}`, `{"type":true}`,
		`{"type":"stream:opens"}`, `{"type":"PING"}`, `{"type":" ping"}`, `{"Type":"ping"}`, `{"OP":"ping"}`,
		`{"op":"hello","generation":1}`, `{"op":"stream:ack","ticket":"t"}`, `{"op":1}`,
		`{"type":"ping"`, `{"type":"ping"}{"type":"ping"}`, `{"type":"ping"} x`, `{'type':'ping'}`, `{"type":"ping",}`,
		"\ufeff{\"type\":\"ping\"}", "{\"type\":\"pi\nng\"}", "\x00", "{\"type\":\"ping\\",
	} {
		if f, err := transport.Decode([]byte(text)); !errors.Is(err, transport.ErrUnknownFrame) || f != nil {
			t.Errorf("Decode(%q) = %#v, %v; want ErrUnknownFrame", text, f, err)
		}
	}
}

func TestDecode_Malformed(t *testing.T) {
	cases := []struct{ why, text string }{
		{"an open of no stream", `{"type":"stream:open","proto":"raw"}`},
		{"an open of no protocol", `{"type":"stream:open","stream":"s"}`},
		{"no ticket to dial with", `{"type":"stream:dial","kind":"ws","path":"/","query":""}`},
		{"an empty ticket", `{"type":"stream:dial","ticket":"","kind":"ws"}`},
		{"a ticket that is no string", `{"type":"stream:dial","ticket":5,"kind":"ws"}`},
		{"a dial of no kind", `{"type":"stream:dial","ticket":"t","path":"/"}`},
		{"a path that is no string", `{"type":"stream:dial","ticket":"t","kind":"ws","path":["/"]}`},
		{"a service that is no string", `{"type":"stream:dial","ticket":"t","kind":"tcp","service":{}}`},
		{"a generation in a string", `{"type":"stream:dial","ticket":"t","kind":"tcp","generation":"7"}`},
		{"a negative generation", `{"type":"stream:dial","ticket":"t","kind":"tcp","generation":-7}`},
		{"a generation with a fraction", `{"type":"stream:dial","ticket":"t","kind":"tcp","generation":7.0}`},
		{"a generation above 64 bits", `{"type":"hello","node":"a","generation":18446744073709551616}`},
		{"no generation", `{"type":"hello","node":"a"}`},
		{"no ticket to ack", `{"type":"stream:ack"}`},
		{"null is no ticket", `{"type":"stream:ack","ticket":null}`},
		{"no ticket to cancel", `{"type":"stream:cancel"}`},
		{"a status in a string", `{"type":"stream:refuse","ticket":"t","status":"503"}`},
		{"a reason that is no string", `{"type":"stream:refuse","ticket":"t","status":503,"reason":1}`},
		{"a ticket to refuse that is no string", `{"type":"stream:refuse","ticket":1,"status":503}`},
		{"a negative delay", `{"type":"drain","reconnectAfterMs":-1}`},
		{"a delay above 63 bits", `{"type":"drain","reconnectAfterMs":9223372036854775808}`},
		{"no method", `{"type":"http:request","path":"/"}`},
		{"no path", `{"type":"http:request","method":"GET"}`},
		{"no status", `{"type":"http:response","headers":{}}`},
		{"a status below 100", `{"type":"http:response","status":99}`},
		{"a status above 999", `{"type":"http:response","status":1000}`},
		{"a status with a fraction", `{"type":"http:response","status":200.5}`},
		{"headers in an array", `{"type":"http:response","status":200,"headers":[]}`},
		{"a header of many values", `{"type":"http:response","status":200,"headers":{"a":["1","2"]}}`},
		{"a header that is a number", `{"type":"http:response","status":200,"headers":{"a":1}}`},
		{"a header that is null", `{"type":"http:response","status":200,"headers":{"a":null}}`},
		{"a header twice", `{"type":"http:response","status":200,"headers":{"a":"1","\u0061":"1"}}`},
		{"two types", `{"type":"ping","type":"ping"}`},
		{"two tickets", `{"type":"stream:ack","ticket":"t","t\u0069cket":"u"}`},
		{"too deep", `{"type":"ping","x":` + nested(32) + `}`},
		{"far too deep for encoding/json", nested(20_000)},
		{"too deep, and not even closed", strings.Repeat("[", 20_000)},
		{"too large", padded(transport.MaxControlFrame + 1)},
	}
	for _, c := range cases {
		t.Run(c.why, func(t *testing.T) {
			f, err := transport.Decode([]byte(c.text))
			if !errors.Is(err, transport.ErrMalformed) || errors.Is(err, transport.ErrUnknownFrame) || f != nil {
				t.Errorf("Decode = %#v, %v; want ErrMalformed", f, err)
			}
		})
	}
}

func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

// padded is a ping of that many bytes.
func padded(size int) string {
	const frame = `{"type":"ping","x":""}`
	return strings.Replace(frame, `""`, `"`+strings.Repeat("x", size-len(frame))+`"`, 1)
}

func TestDecode_DoesNotRetain(t *testing.T) {
	text := []byte(`{"type":"http:request","method":"GET","path":"/path","headers":{"name":"value"}}`)
	got, err := transport.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	for i := range text {
		text[i] = '#'
	}
	want := transport.HTTPRequest{Method: "GET", Path: "/path", Headers: map[string]string{"name": "value"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the frame changed with the text it was decoded from: %#v", got)
	}
}

func TestRefuse_Status(t *testing.T) {
	for _, c := range []struct {
		sent string
		want int
	}{
		{`403`, 403}, {`404`, 404}, {`429`, 429}, {`503`, 503},
		{`502`, 502}, {`200`, 502}, {`101`, 502}, {`500`, 502}, {`-403`, 502}, {`0`, 502}, {`null`, 502},
		{`403.5`, 502}, {`1e400`, 502}, {`99999999999999999999`, 502},
	} {
		wantFrame(t, `{"type":"stream:refuse","ticket":"t","status":`+c.sent+`}`,
			transport.Refuse{Ticket: "t", Status: c.want})
	}
	wantFrame(t, `{"type":"stream:refuse"}`, transport.Refuse{Status: 502})
}

func TestRefuse_Reason(t *testing.T) {
	for _, c := range []struct{ why, sent, want string }{
		{"plain", "no such service", "no such service"},
		{"control characters are removed", "a\r\nb\x00\x7f\u0085\tc", "abc"},
		{"123 bytes fit", strings.Repeat("x", 123), strings.Repeat("x", 123)},
		{"124 bytes do not", strings.Repeat("x", 124), strings.Repeat("x", 123)},
		{"cut at a rune", strings.Repeat("x", 122) + "é", strings.Repeat("x", 122)},
		{"cut at a rune of four bytes", strings.Repeat("x", 120) + "😀", strings.Repeat("x", 120)},
		{"what is removed does not count", strings.Repeat("\n", 200) + strings.Repeat("é", 62), strings.Repeat("é", 61)},
		{"not UTF-8", "a\xffb", "a\ufffdb"},
	} {
		t.Run(c.why, func(t *testing.T) {
			want := transport.Refuse{Ticket: "t", Status: 503, Reason: c.want}
			wantFrame(t, string(transport.Encode(transport.Refuse{Ticket: "t", Status: 503, Reason: c.sent})), want)
			escaped := fmt.Sprintf(`{"type":"stream:refuse","ticket":"t","status":503,"reason":%s}`, escape(c.sent))
			wantFrame(t, escaped, want)
		})
	}
}

// escape writes a JSON string with every rune escaped, so that it reaches
// Decode as it is.
func escape(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		if r > 0xFFFF {
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
			continue
		}
		fmt.Fprintf(&b, `\u%04x`, r)
	}
	b.WriteByte('"')
	return b.String()
}

func TestEncode_IsOneLineOfUTF8(t *testing.T) {
	text := transport.Encode(transport.StreamDial{Ticket: "t\n\xff\u2028", Kind: "ws", Path: "/\x00"})
	if !utf8.Valid(text) || strings.ContainsAny(string(text), "\n\r\x00") {
		t.Errorf("Encode = %q, want valid UTF-8 without control characters", text)
	}
	wantFrame(t, string(text), transport.StreamDial{Ticket: "t\n\ufffd\u2028", Kind: "ws", Path: "/\x00"})
}

func BenchmarkDecode(b *testing.B) {
	for _, c := range frames[:6] {
		b.Run(strings.ReplaceAll(c.name, " ", "-"), func(b *testing.B) {
			text := []byte(c.text)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = transport.Decode(text)
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, c := range frames[:6] {
		b.Run(strings.ReplaceAll(c.name, " ", "-"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = transport.Encode(c.frame)
			}
		})
	}
}
