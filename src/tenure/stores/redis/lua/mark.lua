-- Store a durable value if a lease is live.
--
-- KEYS: names, marks, and the four of the lease key
-- ARGV: now, name, holder, fence, mark key, value
-- Returns 1, or 0 if this very lease is not there.

local fence = tonumber(ARGV[4])
local mark = ARGV[4] .. ' ' .. ARGV[6]

-- The same mark again: true even if the lease has ended since, because its reply may have been lost.
if call('HGET', KEYS[2], ARGV[5]) == mark then
  return {1}
end
local key = look(3, ARGV[2])
local lease = key and lease_of(key, ARGV[3])
if not lease or lease.fence ~= fence then
  return {0}
end
call('HSET', KEYS[2], ARGV[5], mark)
return {1}
