-- The rest of list: lease keys with crowds.

local function rows_of(at, name)
  local crowd, rows = crowd_now(at, name), {}
  if crowd then
    local places = call('ZRANGE', KEYS[crowd.at + 1], 0, -1)
    for i = 1, #places do
      local holder = places[(i + crowd.waiters - 1) % #places + 1]  -- leases, then waiters
      local one = read_info(crowd, holder)
      rows[i] = row(holder, one.fence, one.since, one.renewed + one.life, one.ttl, one.limit,
        one.meta)
    end
  end
  return rows
end

-- What has ended is dropped, and what is torn is mended: a full server lets it pass after a removal.
redis.pcall('ZREM', NAMES, '\0')
for _, n in ipairs(crowded) do
  local readable, rows = pcall(rows_of, 4 * n - 2, ARGV[n + 1])
  answers[n] = readable and rows or {{''}}
end
return answers
