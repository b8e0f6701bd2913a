-- Try once to take a lease.
--
-- KEYS: names, fence, and the four of the lease key
-- ARGV: now, name, holder, limit, ttl, meta, patience (0: do not wait), address for the wake-up
-- Returns {1, fence, other limit or 0, held for, limit, meta}
--      or {0, retry in, waiters ahead, other limit or 0}, or {} if the lease cannot be read.

local LEASE = 3
local name, holder, meta, address = ARGV[2], ARGV[3], ARGV[6], ARGV[8]
local limit, ttl, patience = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[7])
local found = call('MGET', KEYS[LEASE], KEYS[2])

-- One last fence for the whole namespace, so that a released key can leave nothing behind.
local function next_fence()
  local last = tonumber(found[2])
  local fence = math.max((is_whole(last, 0, 2 ^ 53 - 2) and last or 0) + 1, now)
  call('SET', KEYS[2], fence)
  return fence
end

local function grant_alone()
  local fence = next_fence()
  save_alone(LEASE, holder, fence, now, now, ttl, limit, meta)
  call('ZADD', NAMES, 0, name)
  return {1, fence, 0, 0, limit, meta}
end

-- Named for a lease that is ALONE; of a CROWD they are seen, kept, granted, waiters, limits and
-- strictest.
local kind, owner, fence, since, renewed, life, bound, note = look(LEASE, name, found[1])
if not kind then
  return grant_alone()
elseif kind == UNREADABLE then
  return {}
end
if kind == ALONE and owner == holder then
  -- It has the lease already: a repeat after a lost reply.
  save_alone(LEASE, holder, fence, since, now, ttl, bound, note)
  return {1, fence, 0, math.max(0, now - since), bound, note}
end
if kind == ALONE and patience <= 0 and math.min(limit, bound) <= 1 then
  return {0, renewed + life - now, 0, bound ~= limit and bound or 0}
end

