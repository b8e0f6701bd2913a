-- Return what beats have left, by source.
--
-- KEYS: after those of all job scripts, a hash source -> stats, and a zset source -> when
-- ARGV: now, bells, how long they are kept, most
-- Returns the values.

local recent = call('ZRANGEBYSCORE', KEYS[27], '(' .. format('%.0f', now - ARGV[3]), '+inf')
local values = {}
table.sort(recent)
for n = 1, min(#recent, tonumber(ARGV[4])) do
  values[#values + 1] = call('HGET', KEYS[26], recent[n]) or nil
end
return values
