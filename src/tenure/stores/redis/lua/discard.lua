-- Remove all that is stored of a lease key, whatever it is.
--
-- KEYS: names, then the four of the lease key
-- ARGV: now, name
-- Returns {how many keys there were}.

local found = redis.call('DEL', KEYS[2], KEYS[3], KEYS[4], KEYS[5])
redis.call('ZREM', KEYS[1], ARGV[2])
return {found}
