-- Crowds: lease keys with several leases or a line. A crowd is a table
--
--   at, name   where its keys are in KEYS, and the name of the lease key
--   seen       the latest instant at which something was granted, renewed or put into the line
--   kept       the instant up to which Redis keeps its keys at least
--   granted    the instant of the latest grant
--   waiters    how many are in the line
--   limits     limit -> how many leases were granted with it
--   live       how many leases there are: the sum over `limits`

local FIRST_PLACE = -2 ^ 52  -- the arrival number of the first in a new line

local function read_info(crowd, holder)
  local fence, since, renewed, life, limit, ttl, meta, address =
    decode(call('HGET', KEYS[crowd.at + 2], holder))
  return {
    fence = fence, since = since, renewed = renewed, life = life,
    limit = limit, ttl = ttl, meta = meta, address = address,
  }
end

-- `life` is how long the record lives from `renewed` on: a lease's ttl, a waiter's patience.
local function write_info(crowd, holder, one)
  call('HSET', KEYS[crowd.at + 2], holder, pack(one.fence, one.since, one.renewed, one.life,
    one.limit, one.ttl, one.meta, one.address))
end

-- An emptied crowd leaves only its head behind: Redis drops empty zsets and hashes by itself.
local function save(crowd)
  if crowd.live + crowd.waiters == 0 then
    forget(crowd.at, crowd.name)
  else
    call('SET', KEYS[crowd.at],
      pack(CROWD, crowd.seen, crowd.kept, crowd.granted, crowd.waiters, crowd.limits),
      'PX', math.ceil(math.max(crowd.kept - now, DAY) / 1000))
  end
end

-- Let the crowd's keys outlive a lease or waiter of this length by a day. Done anew only after
-- half of it, so that hardly any call pays for it, and never for a shorter time than before.
-- `fresh`: one of the keys was made just now.
local function keep(crowd, length, fresh)
  local till = now + length + DAY
  if fresh or crowd.kept < till - DAY / 2 then
    crowd.kept = math.max(crowd.kept, till)
    -- A minute longer than the head, which therefore never stands there without them.
    local milliseconds = math.ceil((crowd.kept - now) / 1000) + 60000
    for i = 1, 3 do
      call('PEXPIRE', KEYS[crowd.at + i], milliseconds)
    end
  end
end

local function count(crowd, limit, change)
  local holders = (crowd.limits[limit] or 0) + change
  crowd.limits[limit] = holders > 0 and holders or nil
  crowd.live = crowd.live + change
end

local function drop_lease(crowd, holder, limit)
  call('ZREM', KEYS[crowd.at + 1], holder)
  call('HDEL', KEYS[crowd.at + 2], holder)
  count(crowd, limit, -1)
end

local function drop_waiter(crowd, holder)
  call('ZREM', KEYS[crowd.at + 1], holder)
  call('HDEL', KEYS[crowd.at + 2], holder)
  call('ZREM', KEYS[crowd.at + 3], holder)
  crowd.waiters = crowd.waiters - 1
end

-- The clock stepped back behind something granted or renewed: whatever began in what is now the
-- future begins now instead. The only walk over all holders, and only after such a step.
local function clamp(crowd)
  for rank, holder in ipairs(call('ZRANGE', KEYS[crowd.at + 1], 0, -1)) do
    local one = read_info(crowd, holder)
    if one.renewed > now then
      one.renewed = now
      write_info(crowd, holder, one)
      local ends = rank > crowd.waiters and KEYS[crowd.at + 1] or KEYS[crowd.at + 3]
      call('ZADD', ends, now + one.life, holder)
    end
  end
  crowd.seen = now
end

-- Return the crowd a head tells of, without what has ended; nil if nothing is left.
local function crowd_at(at, name, seen, kept, granted, waiters, limits)
  local crowd = {
    at = at, name = name, live = 0, waiters = waiters,
    seen = seen, kept = kept, granted = granted, limits = limits,
  }
  for _, holders in pairs(limits) do
    crowd.live = crowd.live + holders
  end
  local changed = now < seen
  if changed then
    clamp(crowd)
  end
  for _, holder in ipairs(call('ZRANGEBYSCORE', KEYS[at + 1], 0, now)) do
    drop_lease(crowd, holder, read_info(crowd, holder).limit)
    changed = true
  end
  if waiters > 0 then
    for _, holder in ipairs(call('ZRANGEBYSCORE', KEYS[at + 3], 0, now)) do
      drop_waiter(crowd, holder)
      changed = true
    end
  end
  if changed then
    save(crowd)
  end
  return crowd.live + crowd.waiters > 0 and crowd or nil
end

-- The same, of a head that was found to be a crowd's earlier in the script: something before may
-- have changed it since, if the same lease key was passed twice.
local function crowd_now(at, name)
  local kind, seen, kept, granted, waiters, limits = look(at, name, call('GET', KEYS[at]))
  return kind and crowd_at(at, name, seen, kept, granted, waiters, limits)
end

-- Return the lease of a holder, if it has one.
local function lease_of(crowd, holder)
  local place = call('ZSCORE', KEYS[crowd.at + 1], holder)
  return place and tonumber(place) > 0 and read_info(crowd, holder) or nil
end

-- Give a lease its full ttl, counted from now.
local function extend(crowd, holder, lease, ttl)
  lease.renewed, lease.ttl, lease.life = now, ttl, ttl
  write_info(crowd, holder, lease)
  call('ZADD', KEYS[crowd.at + 1], now + ttl, holder)
  crowd.seen = now
  keep(crowd, ttl)
  save(crowd)
end

-- Return the smallest limit that leases were granted with.
local function smallest_limit(crowd)
  local smallest = math.huge
  for limit in pairs(crowd.limits) do
    smallest = math.min(smallest, limit)
  end
  return smallest
end

-- Tell the first in line if there is room for it, and nobody else. Only a hint, so a refusal (a
-- user without rights on the channel) must not fail what has been written already.
local function wake_first(crowd)
  if crowd.waiters > 0 then
    local first = call('ZRANGE', KEYS[crowd.at + 1], 0, 0)[1]
    local one = read_info(crowd, first)
    if crowd.live < math.min(one.limit, smallest_limit(crowd)) then
      redis.pcall('PUBLISH', one.address, 'lease ' .. first)
    end
  end
end

