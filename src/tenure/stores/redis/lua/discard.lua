-- Remove all Redis keys of a lease key, readable or not.
--
-- KEYS: names, then the four of the lease key
-- ARGV: now, name
-- Returns {how many keys there were}.

local found = redis.call('DEL', KEYS[2], KEYS[3], KEYS[4], KEYS[5])
redis.call('ZREM', KEYS[1], ARGV[2])
return {found}
