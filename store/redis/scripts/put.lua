-- put writes records of one host's client and dial sockets.
-- KEYS: sockets (hash of records by ID), ends (zset of IDs by deadline in us).
-- ARGV: ttl, then IDs and records.
local ttl = tonumber(ARGV[1])
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local ping, ends = string.format('%.0f', now), string.format('%.0f', now + ttl * 1000)

-- A write adds one record for each that it is given, so dropping one more than
-- that of the expired ones keeps them few.
local old = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ping, 'LIMIT', 0, math.floor(#ARGV / 2) + 1)
if #old > 0 then
  redis.call('HDEL', KEYS[1], unpack(old))
  redis.call('ZREM', KEYS[2], unpack(old))
end

local records, deadlines = {}, {}
for i = 2, #ARGV, 2 do
  records[i - 1], records[i] = ARGV[i], ping .. ' ' .. ARGV[i + 1]
  deadlines[i - 1], deadlines[i] = ends, ARGV[i]
end
redis.call('HSET', KEYS[1], unpack(records))
redis.call('ZADD', KEYS[2], unpack(deadlines))
for _, key in ipairs(KEYS) do
  if redis.call('PTTL', key) < ttl then redis.call('PEXPIRE', key, ARGV[1]) end
end
return 1
