-- Store a durable value if a lease is live.
--
-- KEYS: names, marks, and the four of the lease key
-- ARGV: now, name, holder, fence, mark key, value
-- Returns {1}, or {0} if this lease does not exist.

local LEASE = 3
local mark = ARGV[4] .. ' ' .. ARGV[6]

-- A repeat of the same mark is true even if the lease has ended since: its reply may have been lost.
if call('HGET', KEYS[2], ARGV[5]) == mark then
  return {1}
end

local kind, owner, fence = look(LEASE, ARGV[2], head_of(LEASE))
if kind ~= CROWD then
  if not kind or owner ~= ARGV[3] or fence ~= tonumber(ARGV[4]) then
    return {0}
  end
  call('HSET', KEYS[2], ARGV[5], mark)
  return {1}
end

-- Insert crowd.lua here.

local crowd = crowd_now(LEASE, ARGV[2])
local lease = crowd and lease_of(crowd, ARGV[3])
if not lease or lease.fence ~= tonumber(ARGV[4]) then
  return {0}
end
call('HSET', KEYS[2], ARGV[5], mark)
return {1}
