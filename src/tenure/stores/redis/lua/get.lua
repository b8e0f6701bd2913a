-- Return jobs by id.
--
-- ARGV: now, bells, ids
-- Returns the records, then what is fixed.

local ids = {unpack(ARGV, 3)}
return {call('HMGET', STATE, unpack(ids)), call('HMGET', FIXED, unpack(ids))}
