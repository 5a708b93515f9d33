-- unkeep ends the lease of a node's incarnation.
-- KEYS: lease. ARGV: inc.
if redis.call('HGET', KEYS[1], 'inc') ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
