-- Crowds: lease keys with several leases, or with waiters. A crowd is a table
--
--   at, name   where its keys are in KEYS, and the name of the lease key
--   seen       the latest instant at which a lease was granted or renewed, or a waiter joined
--   kept       the instant up to which Redis keeps its keys at least
--   granted    the instant of the latest grant, or the end of a lease that expired since
--   waiters    how many wait
--   limits     limit -> how many leases were granted with it
--   strictest  the smallest limit of a waiter since the queue was last empty: no current limit is
--              below it
--   live       how many leases there are: the sum over `limits`
--   expired    the fences of leases that have expired, or nil

local FIRST_PLACE = -2 ^ 52  -- the arrival number of the first waiter of a new queue
local LOST_FENCE = 1  -- of a lease whose fence is lost; below all real fences

-- Unreadable details count as missing, see `mend`: a lease keeps its place until its end, and a waiter
-- gets no turn.
local function read_info(crowd, holder)
  local readable, fence, since, renewed, life, limit, ttl, meta, address, kept =
    pcall(decode, call('HGET', KEYS[crowd.at + 2], holder) or '')
  if not (readable and is_lease(holder, fence, since, renewed, life, limit, meta)
    and is_whole(ttl, 0, SPAN_MAX) and type(address) == 'string') then
    local ends = tonumber(call('ZSCORE', KEYS[crowd.at + 1], holder) or 0)
    local is_held = ends > 0
    fence, since, renewed, life = is_held and LOST_FENCE or 0, now, now, 0
    life = is_held and math.min(math.max(0, ends - now), SPAN_MAX) or 0
    limit, ttl, meta, address, kept = math.huge, life, '', '', nil
    for granted_limit in pairs(crowd.limits) do
      limit = math.min(limit, granted_limit)
    end
    limit = limit < math.huge and limit or 1
  end
  return {
    fence = fence, since = since, renewed = renewed, life = life,
    limit = limit, ttl = ttl, meta = meta, address = address, kept = kept,
  }
end

-- `life` is how long the record lives from `renewed` on: a lease's ttl, a waiter's patience.
local function write_info(crowd, holder, one)
  local record = one.kept
    and pack(one.fence, one.since, one.renewed, one.life, one.limit, one.ttl, one.meta,
      one.address, true)
    or pack(one.fence, one.since, one.renewed, one.life, one.limit, one.ttl, one.meta,
      one.address)
  call('HSET', KEYS[crowd.at + 2], holder, record)
end

-- Of an emptied crowd only the head remains, because Redis removes empty zsets and hashes. The head
-- expires first, because it is useless without the other keys.
local function save(crowd)
  local expired = crowd.expired
  if crowd.live + crowd.waiters == 0 then
    (expired and save_expired or forget)(crowd.at, expired and crowd.granted or crowd.name, expired)
    return
  end
  local head = expired
    and pack(CROWD, crowd.seen, crowd.kept, crowd.granted, crowd.waiters, crowd.limits,
      crowd.strictest, expired)
    or pack(CROWD, crowd.seen, crowd.kept, crowd.granted, crowd.waiters, crowd.limits,
      crowd.strictest)
  call('SET', KEYS[crowd.at], head, 'PX', math.ceil((crowd.kept - now) / 1000))
end

-- Let the crowd's keys outlive a lease or waiter of this length by a day. Repeated only after half of
-- that time, so that hardly any call pays for it, and never for a shorter time than before.
-- `fresh`: one of the keys was just created.
local function keep(crowd, length, fresh)
  local till = now + length + DAY
  if fresh or crowd.kept < till - DAY / 2 then
    crowd.kept = math.max(crowd.kept, till)
    -- A minute longer than any head that is saved until they are re-armed.
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

-- Return the smallest limit that leases were granted with.
local function smallest_limit(crowd)
  local smallest = math.huge
  for limit in pairs(crowd.limits) do
    smallest = math.min(smallest, limit)
  end
  return smallest
end

-- Return whether the other keys hold as many records as the head says.
local function is_whole(crowd)
  local records = crowd.live + crowd.waiters
  return call('ZCARD', KEYS[crowd.at + 1]) == records
    and call('HLEN', KEYS[crowd.at + 2]) == records
    and (crowd.waiters == 0 or call('ZCARD', KEYS[crowd.at + 3]) == crowd.waiters)
end

-- Repairs a crowd after the loss of single keys, by an eviction or a DEL by hand. A lease exists as
-- long as one key mentions it, because its holder may be active. If that key lacks its fence, the
-- lease cannot be renewed, but its place stays taken until its end. A waiter with a missing key is
-- dropped: it polls again soon, and takes a new place.
local function mend(crowd)
  local places, info, patience = KEYS[crowd.at + 1], KEYS[crowd.at + 2], KEYS[crowd.at + 3]
  local strictest = next(crowd.limits) and smallest_limit(crowd) or 1
  for _, holder in ipairs(call('HKEYS', info)) do
    local one = read_info(crowd, holder)
    if one.fence > 0 and not call('ZSCORE', places, holder) then
      call('ZADD', places, one.renewed + one.life, holder)
    elseif one.fence == 0
      and not (call('ZSCORE', places, holder) and call('ZSCORE', patience, holder)) then
      call('HDEL', info, holder)
    end
  end
  crowd.live, crowd.waiters, crowd.limits = 0, 0, {}
  for _, holder in ipairs(call('ZRANGE', places, 0, -1)) do
    local ends = tonumber(call('ZSCORE', places, holder))
    local known = call('HEXISTS', info, holder) == 1
    if ends > 0 and not known then
      write_info(crowd, holder, {
        fence = LOST_FENCE, since = now, renewed = now, life = ends - now,
        limit = strictest, ttl = ends - now, meta = '', address = '',
      })
    end
    if ends > 0 then
      count(crowd, read_info(crowd, holder).limit, 1)
    elseif known then
      crowd.waiters = crowd.waiters + 1
    else
      call('ZREM', places, holder)
    end
  end
  for _, holder in ipairs(call('ZRANGE', patience, 0, -1)) do
    local place = call('ZSCORE', places, holder)
    if not place or tonumber(place) > 0 then
      call('ZREM', patience, holder)
    end
  end
  keep(crowd, 0, true)
end

-- The clock was set back behind a grant or a renewal: leases that began in the future begin now. This
-- is the only walk over all holders, and only after such a step.
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

-- Drop all ended leases, because none may count any more. In slices, which take a tenth of the time of
-- single removals when a large fleet has died.
local function drop_ended(crowd)
  local places, info, dropped, expired = KEYS[crowd.at + 1], KEYS[crowd.at + 2], 0, {}
  repeat
    local holders = call('ZRANGEBYSCORE', places, 0, now, 'LIMIT', 0, 1000)
    if #holders > 0 then
      local last
      for place, record in ipairs(call('HMGET', info, unpack(holders))) do
        local fence, _, _, _, limit, _, _, _, kept = decode(record)
        count(crowd, limit, -1)
        if not kept then
          expired[#expired + 1] = fence
          last = holders[place]
        end
      end
      if last then
        crowd.granted = math.max(crowd.granted, tonumber(call('ZSCORE', places, last)))
      end
      call('ZREM', places, unpack(holders))
      call('HDEL', info, unpack(holders))
      dropped = dropped + #holders
    end
  until #holders < 1000
  if #expired > 0 then
    crowd.expired = add_expired(crowd.expired, expired)
  end
  return dropped > 0
end

-- Return the crowd of a head, without ended leases; nil and the expired fences if it is empty.
local function crowd_at(at, name, seen, kept, granted, waiters, limits, strictest, expired)
  local crowd = {
    at = at, name = name, live = 0, waiters = waiters,
    seen = seen, kept = kept, granted = granted, limits = limits, strictest = strictest,
    expired = expired or nil,
  }
  for _, holders in pairs(limits) do
    crowd.live = crowd.live + holders
  end
  local changed = not is_whole(crowd)
  if changed then
    mend(crowd)
  end
  if now < seen then
    clamp(crowd)
    changed = true
  end
  changed = drop_ended(crowd) or changed
  if crowd.waiters > 0 then
    for _, holder in ipairs(call('ZRANGEBYSCORE', KEYS[at + 3], 0, now)) do
      drop_waiter(crowd, holder)
      changed = true
    end
  end
  if changed then
    save(crowd)
  end
  return crowd.live + crowd.waiters > 0 and crowd or nil, crowd.expired
end

-- The same, for a head that the script has read before. It may have changed since, if the same lease
-- key was passed twice.
local function crowd_now(at, name)
  local kind, seen, kept, granted, waiters, limits, strictest, expired =
    look(at, name, head_of(at))
  return kind and crowd_at(at, name, seen, kept, granted, waiters, limits, strictest, expired)
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

-- Wake the first waiter if there is room for it, and no other. This is only a hint, so a refusal (a
-- user without rights on the channel) must not fail the script after its writes.
local function wake_first(crowd)
  if crowd.waiters > 0 then
    local first = call('ZRANGE', KEYS[crowd.at + 1], 0, 0)[1]
    local one = read_info(crowd, first)
    if crowd.live < math.min(one.limit, smallest_limit(crowd)) then
      redis.pcall('PUBLISH', one.address, 'lease ' .. first)
    end
  end
end

