-- The rest of list: lease keys with crowds. Nobody else is served meanwhile, so only so many holders
-- and waiters are looked at. The first crowd that is too large for what is left ends the answer.

local left = 500

-- Return nil if there are too many.
local function rows_of(at, name)
  local crowd, rows = crowd_now(at, name), {}
  if crowd and crowd.live + crowd.waiters > left then
    return nil
  end
  if crowd then
    local places = call('ZRANGE', KEYS[crowd.at + 1], 0, -1)
    for i = 1, #places do
      local holder = places[(i + crowd.waiters - 1) % #places + 1]  -- leases, then waiters
      local one = read_info(crowd, holder)
      rows[i] = row(holder, one.fence, one.since, one.renewed + one.life, one.ttl, one.limit,
        one.meta)
    end
  end
  left = left - #rows
  return rows
end

-- What has ended is dropped, and what is torn is mended: a full server lets it pass after a removal.
redis.pcall('ZREM', NAMES, '\0')
for _, n in ipairs(crowded) do
  local readable, rows = pcall(rows_of, 4 * n - 2, ARGV[n + 1])
  if readable and not rows then
    return {unpack(answers, 1, n - 1)}
  end
  answers[n] = readable and rows or {{''}}
end
return answers
