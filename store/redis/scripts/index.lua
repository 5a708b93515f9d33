-- index adds a node to the list of IDs that may have a lease, and drops those
-- that have had none for long.
-- KEYS: nodes (zset of IDs by the time in ms when they may be dropped).
-- ARGV: id ttl.
local ttl = tonumber(ARGV[2])
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
redis.call('ZADD', KEYS[1], string.format('%.0f', now + ttl), ARGV[1])
if redis.call('PTTL', KEYS[1]) < ttl then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1
