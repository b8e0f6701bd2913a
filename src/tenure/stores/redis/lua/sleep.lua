-- Register for a wake-up by the next job in some queues; see `ring` in jobs.lua.
--
-- KEYS: sleeping
-- ARGV: for how many milliseconds to keep the flags, then the queues

for n = 2, #ARGV do
  redis.call('HSET', KEYS[1], ARGV[n], '1')
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return {}
