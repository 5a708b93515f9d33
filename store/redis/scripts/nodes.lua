-- nodes returns the IDs that may have a lease.
-- KEYS: nodes.
return redis.call('ZRANGE', KEYS[1], 0, -1)
