-- End leases, and their holders' places in the queue.
--
-- KEYS: names, then for each lease the four of its lease key
-- ARGV: now, then for each lease: name, holder, fence (0: any)
-- Returns for each lease 1 if it was live, else 0.

local answers, crowded = {}, {}
for n = 1, (#ARGV - 1) / 3 do
  local at, arg = 4 * n - 2, 3 * n - 1
  local kind, holder, fence = look(at, ARGV[arg], head_of(at))
  answers[n] = 0
  if kind == CROWD then
    crowded[#crowded + 1] = n
  elseif kind and holder == ARGV[arg + 1]
    and (ARGV[arg + 2] == '0' or fence == tonumber(ARGV[arg + 2])) then
    forget(at, ARGV[arg])
    answers[n] = 1
  end
end
if #crowded == 0 then
  return answers
end

-- Insert crowd.lua here.

local function release(crowd, holder, fence)
  if not crowd then
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
  end
  wake_first(crowd)
  return held and 1 or 0
end

for _, n in ipairs(crowded) do
  local arg = 3 * n - 1
  -- An unreadable lease must not keep the others from being released.
  local readable, answer = pcall(function()
    return release(crowd_now(4 * n - 2, ARGV[arg]), ARGV[arg + 1], tonumber(ARGV[arg + 2]))
  end)
  answers[n] = readable and answer or 0
end
return answers
