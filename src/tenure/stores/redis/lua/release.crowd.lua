-- The rest of release: leases and waiters in crowds.

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
  -- What cannot be read does not keep the others from being released.
  local readable, answer = pcall(function()
    return release(crowd_now(4 * n - 2, ARGV[arg]), ARGV[arg + 1], tonumber(ARGV[arg + 2]))
  end)
  answers[n] = readable and answer or 0
end
return answers
