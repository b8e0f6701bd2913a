-- Return what became of the ticks of a schedule, newest first.
--
-- ARGV: now, bells, name, limit

local one = schedule_of(ARGV[3])
local places = one and places_of_decisions(one, tonumber(ARGV[4])) or {}
return #places > 0 and call('HMGET', DECISIONS, unpack(places)) or {}
