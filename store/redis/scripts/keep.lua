-- keep renews the lease of a node's incarnation, or gives it to a new one.
-- KEYS: lease (hash with the node's record), held (list of incarnations: the
-- one that holds the ID, then those that it replaced, the newest first).
-- ARGV: inc lease call at beat, then the other fields and values of the node.
-- Reply: 1 if no live lease of this incarnation stood, or one without its last
-- renewals; 0 if one did; -1 if the incarnation was replaced, or another one has
-- a live lease that started later.
local DAY = 24 * 60 * 60 * 1000
local REPLACED = 16

local inc, lease, call, at, beat = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local held = redis.call('LRANGE', KEYS[2], 0, -1)
for i = 2, #held do
  if held[i] == inc then return -1 end
end
local last = redis.call('HMGET', KEYS[1], 'inc', 'call', 'created', 'at', 'beat')
if last[1] and last[1] ~= inc and (tonumber(at) or 0) < (tonumber(last[4]) or 0) then
  return -1
end
if held[1] ~= inc then
  redis.call('LPUSH', KEYS[2], inc)
  redis.call('LTRIM', KEYS[2], 0, REPLACED)
end

-- A client that lost the reply may send the script once more: the same call
-- gets the same answer.
local created = '1'
if last[1] == inc then
  if last[2] == call then
    created = last[3]
  elseif (tonumber(last[5]) or 0) + 1 >= tonumber(beat) then
    created = '0'
  end
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'inc', inc, 'call', call, 'created', created, 'at', at, 'beat', beat, unpack(ARGV, 6))
redis.call('PEXPIRE', KEYS[1], lease)
redis.call('PEXPIRE', KEYS[2], string.format('%.0f', lease + DAY))
return tonumber(created)
