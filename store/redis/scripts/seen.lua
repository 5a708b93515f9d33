-- seen returns what is remembered of a host, as fields and values, or nothing.
local h = recall()
if standing(h) then
  return {'gen', h.gen, 'ping', h.ping, 'attached', '1', 'node', h.node or '', 'inc', h.inc or ''}
end
if h['t.gen'] and tonumber(h['t.gen']) == fence(h) then
  return {'gen', h['t.gen'], 'ping', h['t.ping'] or '', 'why', h['t.why']}
end
if h.gen then
  return {'gen', h.gen, 'ping', h.ping}
end
return {}
