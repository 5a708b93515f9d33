-- touch refreshes the current socket if it is this one. It is the Ping of a
-- socket with which all is well; assert judges the others.
-- KEYS: live host. ARGV: gen id ttl ttl+day.
-- Reply: 1, or 0 if it is not the current one.
local gen, id = ARGV[1], ARGV[2]
if redis.call('GET', KEYS[1]) ~= gen then return 0 end
local h = redis.call('HMGET', KEYS[2], 'gen', 'id')
if h[1] ~= gen or h[2] ~= id then return 0 end
local t = redis.call('TIME')
redis.call('HSET', KEYS[2], 'ping', string.format('%.0f', t[1] * 1000000 + t[2]))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return 1
