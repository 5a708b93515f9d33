-- What the scripts about a host's control sockets share. It stands before each
-- of claim, assert, retire, current and seen.
--
-- KEYS[1]  live: the generation of the current socket; expires with its ttl
-- KEYS[2]  host: a hash of all that is remembered, for a day longer:
--            id gen ...      the socket that is current, or was until it expired
--            p.id p.gen ...  the one that it replaced, or that the tombstone's had
--            t.id t.gen t.inst t.seq t.ping t.why  the tombstone
--            r.1 r.2 ...     the IDs of those that were retired last, newest first
--
-- Fields that would be empty are left out. Numbers of 1e14 and more are kept as
-- strings and made by int(), because Lua prints them in powers of ten.

local DAY = 24 * 60 * 60 * 1000

local KEPT = 8 -- store.RetiredKept

local FIELDS = {'id', 'gen', 'ping', 'node', 'inc', 'proto', 'inst', 'seq', 'at', 'stream', 'meta'}

local function int(n) return string.format('%.0f', n) end

-- now returns the server's time in microseconds since 1970.
local function now()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000000 + tonumber(t[2])
end

local function recall()
  local h, kv = {}, redis.call('HGETALL', KEYS[2])
  for i = 1, #kv, 2 do h[kv[i]] = kv[i + 1] end
  return h
end

-- save writes h in place of what stood. With no current socket ttl is 0.
local function save(h, ttl)
  local kv = {}
  for k, v in pairs(h) do
    kv[#kv + 1] = k
    kv[#kv + 1] = v
  end
  redis.call('DEL', KEYS[2])
  redis.call('HSET', KEYS[2], unpack(kv))
  redis.call('PEXPIRE', KEYS[2], int(ttl + DAY))
  if h.gen then
    redis.call('SET', KEYS[1], h.gen, 'PX', ttl)
  else
    redis.call('DEL', KEYS[1])
  end
end

-- standing says whether the socket in h is current, and has not expired.
local function standing(h)
  return h.gen ~= nil and redis.call('GET', KEYS[1]) == h.gen
end

-- fence returns the highest generation that is remembered, 0 if none is.
local function fence(h)
  return math.max(tonumber(h.gen or 0), tonumber(h['t.gen'] or 0))
end

-- late says whether a socket that is not the current one may no longer be
-- claimed.
local function late(h, current, id, inst, seq)
  for i = 1, KEPT do
    if h['r.' .. i] == id then return true end
  end
  local function superseded(by)
    if h[by .. 'id'] == id then return true end
    return inst ~= '' and h[by .. 'inst'] == inst and tonumber(h[by .. 'seq'] or 0) > tonumber(seq)
  end
  return current and superseded('') or superseded('p.') or superseded('t.')
end

-- remember keeps the ID of a socket that is retired now.
local function remember(h, id)
  for i = KEPT, 2, -1 do h['r.' .. i] = h['r.' .. (i - 1)] end
  h['r.1'] = id
end

-- step makes the socket in h the previous one if it is current, and leaves no
-- previous one if it is not. It is retired either way, unless it is that of id.
local function step(h, current, id)
  if h.id and h.id ~= id then remember(h, h.id) end
  for _, f in ipairs(FIELDS) do
    h['p.' .. f] = current and h[f] or nil
    h[f] = nil
  end
end

-- place puts a socket, given by ARGV[from] and what follows, into h.
local function place(h, from, gen, ping)
  for _, f in ipairs(FIELDS) do h[f] = nil end
  for i = from, #ARGV, 2 do h[ARGV[i]] = ARGV[i + 1] end
  h.gen, h.ping = gen, ping
end

-- flat returns the socket in h as a list of fields and values.
local function flat(h, prefix)
  local kv = {}
  for _, f in ipairs(FIELDS) do
    local v = h[prefix .. f]
    if v then
      kv[#kv + 1] = f
      kv[#kv + 1] = v
    end
  end
  return kv
end

