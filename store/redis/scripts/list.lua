-- list returns the IDs of one host's records that have not expired.
-- KEYS: ends.
local t = redis.call('TIME')
local now = string.format('%.0f', t[1] * 1000000 + t[2])
return redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now, '+inf')
