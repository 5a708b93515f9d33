-- lease returns the record of a node, as fields and values, or nothing.
-- KEYS: lease.
return redis.call('HGETALL', KEYS[1])
