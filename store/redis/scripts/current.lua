-- current returns the current attachment, or nothing.
local h = recall()
if not standing(h) then return {} end
return flat(h, '')
