-- records returns the records of these IDs.
-- KEYS: sockets. ARGV: IDs.
return redis.call('HMGET', KEYS[1], unpack(ARGV))
