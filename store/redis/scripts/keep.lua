-- keep renews the lease of a node's incarnation, or gives it to a new one.
-- KEYS: lease (hash with the node's record), held (list of incarnations: the
-- one that holds the ID, then those that it replaced, the newest first).
-- ARGV: inc lease call, then the fields and values of the node.
-- Reply: 1 if no live lease of this incarnation stood, 0 if one did, -1 if the
-- incarnation was replaced.
local DAY = 24 * 60 * 60 * 1000
local REPLACED = 16

local inc, lease, call = ARGV[1], ARGV[2], ARGV[3]
local held = redis.call('LRANGE', KEYS[2], 0, -1)
for i = 2, #held do
  if held[i] == inc then return -1 end
end
if held[1] ~= inc then
  redis.call('LPUSH', KEYS[2], inc)
  redis.call('LTRIM', KEYS[2], 0, REPLACED)
end

-- A client that lost the reply may send the script once more: the same call
-- gets the same answer.
local created = '1'
local last = redis.call('HMGET', KEYS[1], 'inc', 'call', 'created')
if last[1] == inc then
  created = last[2] == call and last[3] or '0'
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'inc', inc, 'call', call, 'created', created, unpack(ARGV, 4))
redis.call('PEXPIRE', KEYS[1], lease)
redis.call('PEXPIRE', KEYS[2], string.format('%.0f', lease + DAY))
return tonumber(created)
