-- Return jobs by id.
--
-- ARGV: now, bells, ids
-- Returns the records, what is fixed, and the ids of those that were set aside.

local ids, aside = {unpack(ARGV, 3)}, {}
local records = call('HMGET', STATE, unpack(ids))
for n, id in ipairs(ids) do
  if not records[n] and call('HEXISTS', BROKEN, id) == 1 then
    aside[#aside + 1] = id
  end
end
return {records, call('HMGET', FIXED, unpack(ids)), aside}
