-- End leases, and their holders' places in the line.
--
-- KEYS: names, then for each lease the four of its lease key
-- ARGV: now, then for each lease: name, holder, fence (0: whatever it is)
-- Returns for each lease 1 if it was live, else 0.
--
-- The first write is a removal in every case: servers that are out of memory still allow it.

local function release(at, name, holder, fence)
  local key = look(at, name)
  if not key then
    return 0
  end
  local lease = lease_of(key, holder)
  local held = lease and (fence == 0 or lease.fence == fence)
  if key.holder then
    if held then
      forget(at, name)
    end
    return held and 1 or 0
  end
  if held then
    drop_lease(key, holder, lease.limit)
    save_crowd(key)
  elseif not lease and key.waiters > 0 and call('ZSCORE', KEYS[at + 3], holder) then
    drop_waiter(key, holder)
    save_crowd(key)
  end
  wake_first(key)
  return held and 1 or 0
end

local answers = {}
for n = 1, (#ARGV - 1) / 3 do
  local arg = 3 * n - 1
  answers[n] = release(4 * n - 2, ARGV[arg], ARGV[arg + 1], tonumber(ARGV[arg + 2]))
end
return answers
