-- End leases, and their holders' places in the queue.
--
-- KEYS: names, then for each lease the four of its lease key
-- ARGV: now, then for each lease: name, holder, fence (0: any)
-- Returns for each lease 1 if it was live, else 0.

-- Take a fence out of a list of expired leases; say whether it was there.
local function without(expired, fence)
  for place, expired_fence in ipairs(expired or {}) do
    if expired_fence == fence then
      return table.remove(expired, place)
    end
  end
end

-- Of a free key: its holder was late, and left nothing behind for the next one to take over.
local function release_late(at, name, fence, expired, granted)
  if not without(expired, fence) then
    return
  elseif expired[1] then
    save_expired(at, granted, expired)
  else
    forget(at, name)
  end
end

local answers, crowded = {}, {}
for n = 1, (#ARGV - 1) / 3 do
  local at, arg = 4 * n - 2, 3 * n - 1
  local kind, holder, fence, since, renewed, ttl, limit, meta, kept, expired =
    look(at, ARGV[arg], head_of(at))
  answers[n] = 0
  if kind == CROWD then
    crowded[#crowded + 1] = n
  elseif kind and holder == ARGV[arg + 1]
    and (ARGV[arg + 2] == '0' or fence == tonumber(ARGV[arg + 2])) then
    if expired then
      save_expired(at, since, expired)
    else
      forget(at, ARGV[arg])
    end
    answers[n] = 1
  elseif kind == ALONE and without(expired, tonumber(ARGV[arg + 2])) then
    save_alone(at, holder, fence, since, renewed, ttl, limit, meta, kept, expired[1] and expired)
  elseif not kind then
    release_late(at, ARGV[arg], tonumber(ARGV[arg + 2]), holder, fence)
  end
end
if #crowded == 0 then
  return answers
end

-- Insert crowd.lua here.

local function release(at, name, holder, fence)
  local crowd = crowd_now(at, name)
  if not crowd then
    local _, expired, granted = look(at, name, head_of(at))
    release_late(at, name, fence, expired, granted)
    return 0
  end
  local lease = lease_of(crowd, holder)
  local held = lease and (fence == 0 or lease.fence == fence)
  if held then
    drop_lease(crowd, holder, lease.limit)
    save(crowd)
  elseif not lease and crowd.waiters > 0 and call('ZSCORE', KEYS[crowd.at + 3], holder) then
    drop_waiter(crowd, holder)
    save(crowd)
  elseif without(crowd.expired, fence) then
    crowd.expired = crowd.expired[1] and crowd.expired
    save(crowd)
  end
  wake_first(crowd)
  return held and 1 or 0
end

for _, n in ipairs(crowded) do
  local arg = 3 * n - 1
  -- An unreadable lease must not keep the others from being released.
  local readable, answer = pcall(function()
    return release(4 * n - 2, ARGV[arg], ARGV[arg + 1], tonumber(ARGV[arg + 2]))
  end)
  answers[n] = readable and answer or 0
end
return answers
