-- Make a replica known.
--
-- ARGV: now, bells, replica, ttl, meta

local one = replica_of(ARGV[3])
if not one then
  one = {id = ARGV[3], joined = now, dead = false, claim_no = 0, meta = ARGV[5]}
  call('ZADD', JOINED, now, one.id)
end
if not one.dead then
  renew(one, now, tonumber(ARGV[4]))
end
return {}
