-- seen returns what is remembered of a host, as fields and values, or nothing.
local h = recall()
if standing(h) then
  return {'gen', h.gen, 'ping', h.ping, 'attached', '1', 'node', h.node or '', 'inc', h.inc or ''}
end
if h['t.gen'] and tonumber(h['t.gen']) == fence(h) then
  -- The key has its day since the tombstone was written: nothing is newer. It
  -- has more if the clock went back since.
  local left = math.max(DAY - redis.call('PTTL', KEYS[2]), 0)
  return {'gen', h['t.gen'], 'ping', h['t.ping'] or '', 'why', h['t.why'], 'left', int(left)}
end
if h.gen then
  return {'gen', h.gen, 'ping', h.ping}
end
return {}
