-- The rest of mark: the lease is in a crowd.

local crowd = crowd_now(LEASE, ARGV[2])
local lease = crowd and lease_of(crowd, ARGV[3])
if not lease or lease.fence ~= tonumber(ARGV[4]) then
  return {0}
end
call('HSET', KEYS[2], ARGV[5], mark)
return {1}
