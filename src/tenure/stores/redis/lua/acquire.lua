-- Try once to take a lease.
--
-- KEYS: names, fence, and the four of the lease key
-- ARGV: now, name, holder, limit, ttl, meta, patience (0: do not wait), address for the wake-up
-- Returns {1, fence, other limit or 0, held for, limit, meta}
--      or {0, retry in, waiters ahead, other limit or 0}.

local LEASE = 3
local name, holder, meta, address = ARGV[2], ARGV[3], ARGV[6], ARGV[8]
local limit, ttl, patience = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[7])

-- One last fence for the whole namespace, so that a released key can leave nothing behind.
local function next_fence()
  local last = tonumber(call('GET', KEYS[2]) or 0)
  local fence = math.max(last + 1, now)
  call('SET', KEYS[2], fence)
  return fence
end

-- The smallest limit of the other holders, if any differs from the caller's; 0 otherwise.
local function other_limit(key, own)
  local smallest, differs = math.huge, false
  for bound, holders in pairs(key.limits) do
    if holders > (bound == own and 1 or 0) then
      smallest = math.min(smallest, bound)
      differs = differs or bound ~= limit
    end
  end
  return differs and smallest or 0
end

local function grant_alone()
  local fence = next_fence()
  save_alone({
    at = LEASE, holder = holder, fence = fence,
    since = now, renewed = now, ttl = ttl, limit = limit, meta = meta,
  })
  call('ZADD', KEYS[1], 0, name)
  return {1, fence, 0, 0, limit, meta}
end

-- Make room for a second holder or a line beside a lease that was alone.
local function as_crowd(key)
  local crowd = {
    at = LEASE, name = name, live = 1, waiters = 0,
    seen = key.renewed, kept = 0, granted = key.since, limits = {[key.limit] = 1},
  }
  -- What an earlier crowd left, if Redis has collected its head a moment before the rest.
  call('DEL', KEYS[LEASE + 1], KEYS[LEASE + 2], KEYS[LEASE + 3])
  call('ZADD', KEYS[LEASE + 1], key.renewed + key.ttl, key.holder)
  write_info(crowd, key.holder, {
    fence = key.fence, since = key.since, renewed = key.renewed, life = key.ttl,
    limit = key.limit, ttl = key.ttl, meta = key.meta, address = '',
  })
  -- Its own length first: the newcomer's may be shorter.
  keep_crowd(crowd, key.ttl, true)
  return crowd
end

-- The holder has the lease already: a repeat after a lost reply, or a renewal.
local function grant_again(key, lease)
  local other = 0
  lease.renewed, lease.ttl = now, ttl
  if key.holder then
    save_alone(lease)
  else
    other = other_limit(key, lease.limit)
    lease.life = ttl
    write_info(key, holder, lease)
    call('ZADD', KEYS[LEASE + 1], now + ttl, holder)
    key.seen = now
    keep_crowd(key, ttl)
    save_crowd(key)
  end
  return {1, lease.fence, other, math.max(0, now - lease.since), lease.limit, lease.meta}
end

local function grant_in_crowd(key, waited)
  local other = other_limit(key)
  local fence = next_fence()
  if waited then
    call('ZREM', KEYS[LEASE + 3], holder)
    key.waiters = key.waiters - 1
  end
  call('ZADD', KEYS[LEASE + 1], now + ttl, holder)
  write_info(key, holder, {
    fence = fence, since = now, renewed = now, life = ttl,
    limit = limit, ttl = ttl, meta = meta, address = '',
  })
  count(key, limit, 1)
  key.seen, key.granted = now, now
  keep_crowd(key, ttl)
  save_crowd(key)
  wake_first(key)
  return {1, fence, other, 0, limit, meta}
end

-- Take a place in the line, or keep it: the arrival number stays, all else is as asked for now.
local function join(key, place)
  local since = now
  local places, fresh = KEYS[LEASE + 1], key.waiters == 0
  if place then
    since = read_info(key, holder).since
  else
    local last = key.waiters > 0
      and call('ZRANGE', places, key.waiters - 1, key.waiters - 1, 'WITHSCORES')[2]
    call('ZADD', places, last and last + 1 or FIRST_PLACE, holder)
    key.waiters = key.waiters + 1
  end
  write_info(key, holder, {
    fence = 0, since = since, renewed = now, life = patience,
    limit = limit, ttl = ttl, meta = meta, address = address,
  })
  call('ZADD', KEYS[LEASE + 3], now + patience, holder)
  key.seen = now
  keep_crowd(key, patience, fresh)
  save_crowd(key)
end

-- When the lease ends whose place the caller would get, the waiters ahead taking the earlier ones.
local function retry_in(key, ahead)
  if key.live == 0 then
    local first = call('ZRANGE', KEYS[LEASE + 1], 0, 0)[1]
    return call('ZSCORE', KEYS[LEASE + 3], first) - now
  end
  local places = math.min(limit, smallest_limit(key))
  local nth = math.min(key.live, key.live + ahead - places + 1)
  local rank = key.waiters + nth - 1  -- waiters have the lowest scores
  return call('ZRANGE', KEYS[LEASE + 1], rank, rank, 'WITHSCORES')[2] - now
end

local key = look(LEASE, name)
if not key then
  return grant_alone()
end

if key.holder then
  if key.holder == holder then
    return grant_again(key, key)
  end
  -- The answer most callers get who do not wait: nothing is written.
  if patience <= 0 and math.min(limit, key.limit) <= 1 then
    return {0, key.renewed + key.ttl - now, 0, key.limit ~= limit and key.limit or 0}
  end
  key = as_crowd(key)
end

local place = call('ZSCORE', KEYS[LEASE + 1], holder)
if place and tonumber(place) > 0 then
  return grant_again(key, read_info(key, holder))
end
local ahead = place and call('ZRANK', KEYS[LEASE + 1], holder) or key.waiters
if key.live + ahead < math.min(limit, smallest_limit(key)) then
  return grant_in_crowd(key, place)
end
local busy = {0, retry_in(key, ahead), ahead, other_limit(key)}
if patience > 0 then
  join(key, place)
end
return busy
