-- claim makes a socket the current one.
-- ARGV: id inst seq ttl, then the fields and values of the attachment.
-- Reply: the current and the previous attachment; nothing if the claim is late.
local id, inst, seq, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local h = recall()
local current = standing(h)
if not (current and h.id == id) then
  if late(h, current, id, inst, seq) then return {} end
  local t = now()
  local gen = math.max(t, fence(h) + 1)
  step(h, current, id)
  place(h, 5, int(gen), int(t))
end
save(h, ttl)
return {flat(h, ''), flat(h, 'p.')}
