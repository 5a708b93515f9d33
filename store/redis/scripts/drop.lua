-- drop removes records of one host's client and dial sockets.
-- KEYS: sockets ends. ARGV: IDs.
redis.call('HDEL', KEYS[1], unpack(ARGV))
redis.call('ZREM', KEYS[2], unpack(ARGV))
return 1
