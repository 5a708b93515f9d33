#!/usr/bin/env node
// A host of protocol version 2 for a Dialback relay: it keeps a control socket
// open, and for each stream:dial it dials a data socket back and joins it with
// a local HTTP service. Section numbers are those of PROTOCOL.md.
import http from 'node:http';
import https from 'node:https';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import WebSocket from 'ws';

const PING_EVERY = 45_000; // ms; also the constants below
const SILENCE = 100_000;
const HANDSHAKE = 10_000; // DNS, connect, TLS and upgrade together
const STABLE = 10_000; // a control socket that lasted so long resets the backoff
const SLOWLY = 60_000; // where coming back soon cannot help
const HIGH_WATER = 1 << 20; // bytes that may wait on one socket before its source is paused

const { values: args } = parseArgs({
  options: { relay: { type: 'string' }, id: { type: 'string' }, to: { type: 'string' }, token: { type: 'string' } },
});
if (!args.relay || !args.id || !args.to) {
  console.error('usage: node host.mjs --relay http://127.0.0.1:8080 --id ID --to http://127.0.0.1:3000 [--token TOKEN]');
  process.exit(2);
}
const token = args.token ?? process.env.DIALBACK_TOKEN;
const relay = args.relay.replace(/^http/, 'ws').replace(/\/+$/, '');
const service = URL.canParse(args.to) ? new URL(args.to) : {};
if (!/^https?:$/.test(service.protocol) || service.pathname !== '/') {
  console.error('--to must be an origin, such as http://127.0.0.1:3000');
  process.exit(2);
}
const log = (...words) => console.error(new Date().toISOString(), ...words);

let current; // the control socket, while it is open
const serving = new Set(); // tickets of dials in progress

await main();

// main keeps the host attached, for ever (section 13).
async function main() {
  for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, stop);
  let failures = 0; // in a row
  let replaced = []; // when, in the last minute
  for (;;) {
    let end;
    let since = Infinity;
    try {
      const headers = token ? { 'Dialback-Authorization': `Bearer ${token}` } : {};
      const ws = await open(`${relay}/v2/control?hostId=${encodeURIComponent(args.id)}`, { headers });
      since = performance.now();
      end = await control(ws);
      log(`control socket ended: ${end.code} ${end.reason}`);
    } catch (err) {
      end = err;
      log(`no control socket: ${err.message}`);
    }
    const now = performance.now();
    failures = now - since >= STABLE ? 1 : failures + 1;
    if (end.code === 4409) replaced = [...replaced.filter((at) => now - at < 60_000), now];
    await sleep(Math.max(delay(end, failures, replaced.length), end.retryAfter ?? 0));
  }
}

// delay is how long to wait before the next attempt, in milliseconds.
function delay({ code, status }, failures, replacements) {
  if (code === 4408 && failures === 1) return 0; // stale: the relay lost us
  if ([4400, 4403].includes(code) || [400, 403, 404].includes(status)) return SLOWLY;
  if (code === 4409 && replacements >= 3) {
    log(`another host has the id ${args.id}`);
    return SLOWLY;
  }
  if (code === 4409 && failures === 1) return Math.random() * 1000;
  return Math.random() * Math.min(5000, 500 * 2 ** (failures - 1));
}

// control serves one control socket until it ends (section 6).
function control(ws) {
  let pongSeen = false;
  let heard = performance.now();
  const ping = () => ws.send('{"type":"ping"}');
  const pinging = setInterval(ping, PING_EVERY);
  const watching = setInterval(() => {
    // The guard matters: an older relay that does not know the ping is silent too.
    if (pongSeen && performance.now() - heard >= SILENCE) ws.terminate(); // no waiting for a handshake
  }, 1000);
  ws.on('message', (data, isBinary) => {
    if (isBinary) return;
    heard = performance.now();
    const frame = parse(data);
    if (frame.type === 'pong' || (frame.type === undefined && frame.op === 'pong')) {
      if (!pongSeen) console.log(`attached as ${args.id}`);
      pongSeen = true;
    } else if (frame.type === 'stream:dial') {
      answer(frame);
    }
  });
  current = ws;
  ping();
  ws.resume();
  return new Promise((resolve) => {
    ws.once('close', (code, reason) => {
      clearInterval(pinging);
      clearInterval(watching);
      resolve({ code, reason: reason.toString() });
    });
  });
}

// answer takes a stream:dial (section 7). The stream lives on when the control
// socket ends.
async function answer({ ticket, kind, path, query }) {
  if (typeof ticket !== 'string' || ticket === '' || serving.has(ticket)) return;
  serving.add(ticket);
  try {
    if (kind === 'http') {
      exchange(await dialBack(ticket));
    } else if (kind === 'ws' && typeof path === 'string' && path.startsWith('/')) {
      const local = await openService(query ? `${path}?${query}` : path);
      // Not before the service is reached: now a failure can still be a refusal.
      splice(local, await dialBack(ticket).catch((err) => { local.terminate(); throw err; }));
    } else {
      throw new Error(`unsupported kind or path`);
    }
  } catch (err) {
    log(`no stream: ${err.message}`);
    if (err.atDialBack && err.status) return; // the relay knows: it no longer waits
    if (current?.readyState === WebSocket.OPEN) {
      current.send(JSON.stringify({ type: 'stream:refuse', ticket, status: 502, reason: err.message }));
    }
  } finally {
    serving.delete(ticket);
  }
}

function dialBack(ticket) {
  const address = `${relay}/v2/dial?hostId=${encodeURIComponent(args.id)}&ticket=${encodeURIComponent(ticket)}`;
  return open(address).catch((err) => { throw Object.assign(err, { atDialBack: true }); });
}

// openService opens a WebSocket of the service. The path goes into the request
// as it is: made part of a URL it would be normalised, or lead elsewhere.
function openService(path) {
  return open(service.origin.replace(/^http/, 'ws'), { finishRequest: (req) => { req.path = path; req.end(); } });
}

// open resolves with an open WebSocket, paused so that nothing is lost before
// its listeners are there: whoever adds them resumes it.
function open(address, options) {
  return new Promise((resolve, reject) => {
    const ws = new WebSocket(address, { perMessageDeflate: false, maxPayload: 0, ...options });
    const timer = setTimeout(() => {
      reject(new Error('no handshake in time'));
      ws.terminate();
    }, HANDSHAKE);
    ws.on('error', reject); // after the promise is settled: 'close' tells
    ws.once('open', () => {
      clearTimeout(timer);
      ws.pause();
      resolve(ws);
    });
    ws.once('unexpected-response', (req, res) => {
      const seconds = Math.min(Number(res.headers['retry-after']) || 0, 60);
      const err = new Error(`status ${res.statusCode}`);
      clearTimeout(timer);
      reject(Object.assign(err, { status: res.statusCode, retryAfter: seconds * 1000 }));
      req.destroy();
    });
    ws.once('close', () => clearTimeout(timer));
  });
}

// splice joins two WebSockets message by message (section 8, ws).
function splice(a, b) {
  for (const [from, to] of [[a, b], [b, a]]) {
    from.on('message', (data, isBinary) => {
      to.send(data, { binary: isBinary }, () => { if (to.bufferedAmount < HIGH_WATER) from.resume(); });
      if (to.bufferedAmount >= HIGH_WATER) from.pause();
    });
    from.once('close', (code, reason) => {
      to.resume(); // to read its close frame
      if (code === 1006) to.terminate(); // an abnormal end stays one
      else if (code === 1005) to.close();
      else to.close(code, reason);
    });
  }
  for (const [ws, other] of [[a, b], [b, a]]) {
    if (ws.readyState === WebSocket.OPEN) ws.resume();
    else other.terminate(); // it ended before there was a listener
  }
}

// exchange serves one HTTP request over a data socket (section 8, http).
function exchange(data) {
  let request;
  data.on('message', (message, isBinary) => {
    const frame = isBinary ? {} : parse(message);
    if (isBinary && request && !request.destroyed) {
      if (!request.headersSent && !request.hasHeader('content-length')) request.setHeader('transfer-encoding', 'chunked');
      if (!request.write(message) && !data.isPaused) {
        data.pause();
        request.once('drain', () => data.resume());
      }
    } else if (frame.type === 'http:request' && !request) {
      try {
        request = forward(data, frame);
      } catch (err) {
        data.close(1011, `bad request: ${err.code}`); // a header or path that Node does not send
      }
    } else if (frame.type === 'http:end') {
      request?.end();
    }
  });
  // Before http:end this aborts the request: half of a POST must not run.
  data.once('close', () => request?.destroy());
  data.resume();
}

// forward begins the request to the service, each on a connection of its own: a
// kept one may be closed by the service at the very moment it is used again.
function forward(data, { method, path, headers }) {
  if (typeof path !== 'string' || !path.startsWith('/')) throw Object.assign(new Error('path'), { code: 'PATH' });
  const { request } = service.protocol === 'https:' ? https : http;
  const { hostname, port } = service;
  const fail = (err) => data.close(1011, `service: ${err.code ?? err.message}`.slice(0, 100));
  const req = request({
    hostname: hostname.replace(/^\[|\]$/g, ''), port, method, path, headers: headers ?? {}, agent: false,
  });
  req.on('error', (err) => { if (!req.res) fail(err); }); // an answer may come before the request has ended
  req.once('close', () => data.resume());
  req.on('response', (res) => respond(data, res).catch(fail));
  return req;
}

// respond streams the service's answer; a send waits until the bytes are on
// their way, which holds the service back.
async function respond(data, res) {
  const send = (message) => new Promise((resolve, reject) => {
    data.send(message, (err) => (err ? reject(err) : resolve()));
  });
  await send(JSON.stringify({ type: 'http:response', status: res.statusCode, headers: endToEnd(res) }));
  for await (const chunk of res) await send(chunk);
  await send('{"type":"http:end"}');
  setTimeout(() => data.terminate(), HANDSHAKE).unref(); // should the relay not close
}

// endToEnd flattens the headers of an answer, without those of the connection.
function endToEnd(res) {
  const hop = new Set(['connection', 'keep-alive', 'proxy-connection', 'te', 'trailer', 'transfer-encoding', 'upgrade']);
  for (const name of (res.headers.connection ?? '').split(',')) hop.add(name.trim().toLowerCase());
  const flat = {};
  for (let i = 0; i < res.rawHeaders.length; i += 2) {
    const name = res.rawHeaders[i].toLowerCase();
    const value = res.rawHeaders[i + 1];
    if (hop.has(name)) continue;
    flat[name] = name in flat && name !== 'set-cookie' ? `${flat[name]}, ${value}` : value;
  }
  return flat;
}

// parse returns the object in a text frame; an empty one for anything else.
function parse(data) {
  try {
    return Object(JSON.parse(data.toString()));
  } catch {
    return {};
  }
}

function stop() {
  current?.close(1001, 'host stopping');
  setTimeout(() => process.exit(0), 200);
}
