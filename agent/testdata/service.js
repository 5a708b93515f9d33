// An HTTP service as Node makes it, for nodejs_test.go:
//
//	node service.js KEEPALIVE SILENT
//
// KEEPALIVE is keepAliveTimeout in milliseconds, 0 for Node's default. SILENT is 1
// for a service that does not say so in a Keep-Alive header. It prints its port
// and lives until its standard input ends. A POST is answered with how often its
// body has been posted.
//
// It is busy, as services are: for 23 of each 31 milliseconds it looks at nothing.
// A request that comes in that time finds its connection open, and closed when the
// time is over, if the keep-alive has run out meanwhile: Node looks at its timers
// first. 1, 2, 5 or 6 seconds after an answer it is in the midst of such a time.
// (keepAliveTimeout is 5 seconds, and newer versions of Node add one to it.)
'use strict'
const http = require('node:http')
const [keepAlive, silent] = process.argv.slice(2).map(Number)
const seen = new Map()

const server = http.createServer((req, res) => {
  let body = ''
  req.setEncoding('utf8')
  req.on('data', (piece) => { body += piece })
  req.on('end', () => {
    seen.set(body, (seen.get(body) ?? 0) + 1)
    if (silent) res.setHeader('Connection', 'keep-alive') // then Node adds no Keep-Alive
    res.end(String(seen.get(body)))
  })
})
if (keepAlive) server.keepAliveTimeout = keepAlive
server.listen(0, '127.0.0.1', () => console.log(server.address().port))

const never = new Int32Array(new SharedArrayBuffer(4))
const busy = () => {
  Atomics.wait(never, 0, 0, 23)
  setTimeout(() => setImmediate(busy), 31 - Date.now() % 31) // timers follow immediates
}
busy()
process.stdin.on('end', () => process.exit(0)).resume()
