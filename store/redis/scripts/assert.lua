-- assert refreshes a socket, writes it again if the row was lost, or finds that
-- it is retired.
-- ARGV: gen id ttl, then the fields and values of the attachment.
-- Reply: 1 if it is current, 0 if it is retired.
local gen, id, ttl = ARGV[1], ARGV[2], ARGV[3]
local h = recall()
local current = standing(h)
local ping = int(now())
if current and h.gen == gen then
  if h.id ~= id then return 0 end
  h.ping = ping
elseif fence(h) > tonumber(gen) or h['t.gen'] == gen then
  return 0
else -- the row is lost: it has expired, or what stands is an older one
  if not (h.id == id and h.gen == gen) then step(h, current, id) end
  place(h, 4, gen, ping)
end
save(h, ttl)
return 1
