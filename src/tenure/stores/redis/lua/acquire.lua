-- Try once to take a lease.
--
-- KEYS: names, fence, and the four of the lease key
-- ARGV: now, name, holder, limit, ttl, meta, patience (0: do not wait), address for the wake-up
-- Returns {1, fence, other limit or 0, held for, limit, meta}, the same with 2 if it takes the place
--         of an expired lease
--      or {0, retry in, waiters ahead, other limit or 0}, or {} if the lease cannot be read.

local LEASE = 3
local name, holder, meta, address = ARGV[2], ARGV[3], ARGV[6], ARGV[8]
local limit, ttl, patience = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[7])
local found = call('MGET', KEYS[LEASE], KEYS[2])

-- One last fence for the whole namespace, so that a released key needs no record.
local function next_fence()
  local last = tonumber(found[2])
  local fence = math.max((is_whole(last, 0, 2 ^ 53 - 2) and last or 0) + 1, now)
  call('SET', KEYS[2], fence)
  return fence
end

-- Take the oldest expired lease out of the list. Return the state for the answer, and what is left.
local function take_over(expired)
  if not expired then
    return 1, nil
  end
  table.remove(expired, 1)
  return 2, expired[1] and expired or nil
end

local function grant_alone(all_expired)
  local fence, state, expired = next_fence(), take_over(all_expired)
  save_alone(LEASE, holder, fence, now, now, ttl, limit, meta, false, expired)
  call('ZADD', NAMES, 0, name)
  return {state, fence, 0, 0, limit, meta}
end

-- Named for a lease that is ALONE. For a CROWD they are seen, kept, granted, waiters, limits,
-- strictest and expired.
local kind, owner, fence, since, renewed, life, bound, note, kept, expired =
  look(LEASE, name, found[1])
if not kind then
  return grant_alone(owner)  -- what has expired
elseif kind == UNREADABLE then
  return {}
end
if kind == ALONE and owner == holder then
  -- It has the lease already: a repeat after a lost reply.
  save_alone(LEASE, holder, fence, since, now, ttl, bound, note, kept, expired)
  return {1, fence, 0, math.max(0, now - since), bound, note}
end
if kind == ALONE and patience <= 0 and math.min(limit, bound) <= 1 then
  return {0, renewed + life - now, 0, bound ~= limit and bound or 0}
end

-- Insert crowd.lua here.

-- Make a crowd of a lease that was alone.
local function crowd_of_one()
  local crowd = {
    at = LEASE, name = name, live = 1, waiters = 0,
    seen = renewed, kept = 0, granted = since, limits = {[bound] = 1}, strictest = 0,
    expired = expired,
  }
  -- Remains of an earlier crowd, if Redis has collected its head a moment before the other keys.
  call('DEL', KEYS[LEASE + 1], KEYS[LEASE + 2], KEYS[LEASE + 3])
  call('ZADD', KEYS[LEASE + 1], renewed + life, owner)
  write_info(crowd, owner, {
    fence = fence, since = since, renewed = renewed, life = life,
    limit = bound, ttl = life, meta = note, address = '', kept = kept,
  })
  -- For its own length first, because the new lease's may be shorter.
  keep(crowd, life)
  return crowd
end

-- The smallest limit of the other holders that differs from the caller's, or 0. `own` is the limit of
-- the caller's own lease.
local function other_limit(crowd, own)
  local smallest = math.huge
  for granted_limit, holders in pairs(crowd.limits) do
    if granted_limit ~= limit and holders > (granted_limit == own and 1 or 0) then
      smallest = math.min(smallest, granted_limit)
    end
  end
  return smallest < math.huge and smallest or 0
end

local function grant_in(crowd, waited)
  local other, new_fence = other_limit(crowd), next_fence()
  if waited then
    call('ZREM', KEYS[LEASE + 3], holder)
    crowd.waiters = crowd.waiters - 1
  end
  local state
  state, crowd.expired = take_over(crowd.expired)
  count(crowd, limit, 1)
  crowd.granted = now
  extend(crowd, holder, {
    fence = new_fence, since = now, limit = limit, meta = meta, address = '',
  }, ttl)
  wake_first(crowd)
  return {state, new_fence, other, 0, limit, meta}
end

-- Take a place in the queue, or keep it: only the arrival number stays the same.
local function join(crowd, place)
  local arrived, fresh = now, crowd.waiters == 0
  if place then
    arrived = read_info(crowd, holder).since
  else
    local places, last = KEYS[LEASE + 1], crowd.waiters - 1
    place = fresh and FIRST_PLACE or call('ZRANGE', places, last, last, 'WITHSCORES')[2] + 1
    call('ZADD', places, place, holder)
    crowd.waiters = crowd.waiters + 1
  end
  crowd.strictest = fresh and limit or math.min(crowd.strictest, limit)
  write_info(crowd, holder, {
    fence = 0, since = arrived, renewed = now, life = patience,
    limit = limit, ttl = ttl, meta = meta, address = address,
  })
  call('ZADD', KEYS[LEASE + 3], now + patience, holder)
  crowd.seen = now
  keep(crowd, patience, fresh)
  save(crowd)
end

-- Return the smallest limit among the caller, the holders and the waiters ahead of it. It visits
-- waiters only while one of them may have a smaller limit than the others, as in a deployment. With
-- as many waiters ahead as the limit the caller is refused, whatever limits the others have.
local function effective_limit(crowd, ahead)
  local smallest = math.min(limit, smallest_limit(crowd))
  if ahead > 0 and ahead < smallest and crowd.strictest < smallest then
    for _, waiter in ipairs(call('ZRANGE', KEYS[LEASE + 1], 0, ahead - 1)) do
      smallest = math.min(smallest, read_info(crowd, waiter).limit)
    end
  end
  return smallest
end

-- When the lease ends whose place the caller would get, as waiters ahead take the earlier ones.
local function retry_in(crowd, ahead, room)
  if crowd.live == 0 then
    local first = call('ZRANGE', KEYS[LEASE + 1], 0, 0)[1]
    return call('ZSCORE', KEYS[LEASE + 3], first) - now
  end
  local nth = math.min(crowd.live, crowd.live + ahead - room + 1)
  local rank = crowd.waiters + nth - 1  -- skips all waiters
  return call('ZRANGE', KEYS[LEASE + 1], rank, rank, 'WITHSCORES')[2] - now
end

local crowd, left
if kind == ALONE then
  crowd = crowd_of_one()
else
  crowd, left = crowd_at(LEASE, name, owner, fence, since, renewed, life, bound, note)
end
if not crowd then
  return grant_alone(left)
end

local place = call('ZSCORE', KEYS[LEASE + 1], holder)
local lease = place and tonumber(place) > 0 and read_info(crowd, holder)
if lease and lease.fence == LOST_FENCE then
  -- Its old lease cannot be granted again with the same fence, so this is a new request.
  drop_lease(crowd, holder, lease.limit)
  save(crowd)
  if crowd.live + crowd.waiters == 0 then
    return grant_alone(crowd.expired)
  end
  place, lease = nil, nil
end
if lease then
  extend(crowd, holder, lease, ttl)
  return {1, lease.fence, other_limit(crowd, lease.limit), math.max(0, now - lease.since),
    lease.limit, lease.meta}
end

local ahead = place and call('ZRANK', KEYS[LEASE + 1], holder) or crowd.waiters
local room = effective_limit(crowd, ahead)
if crowd.live + ahead < room then
  return grant_in(crowd, place)
end
local busy = {0, retry_in(crowd, ahead, room), ahead, other_limit(crowd)}
if patience > 0 then
  join(crowd, place)
end
return busy
