-- retire turns a socket into a tombstone.
-- ARGV: gen id reason.
local gen, id, reason = ARGV[1], ARGV[2], ARGV[3]
local h = recall()
if fence(h) > tonumber(gen) or h['t.gen'] == gen then
  return 0 -- it has a successor, or was retired before
end
local inst, seq, ping
if h.gen == gen and h.id == id then
  inst, seq, ping = h.inst, h.seq, h.ping
  for _, f in ipairs(FIELDS) do h[f] = nil end -- its previous one stays
else
  local current = standing(h)
  if current and h.gen == gen then return 0 end -- another socket's
  step(h, current, id) -- of an older generation: this one had replaced it
end
remember(h, id)
h['t.gen'], h['t.id'], h['t.why'] = gen, id, reason
h['t.inst'], h['t.seq'], h['t.ping'] = inst, seq, ping
save(h, 0)
return 1
