-- The rest of list: lease keys with crowds.

for _, n in ipairs(crowded) do
  local crowd = crowd_now(4 * n - 2, ARGV[n + 1])
  if crowd then
    local places = call('ZRANGE', KEYS[crowd.at + 1], 0, -1)
    for i = 1, #places do
      local holder = places[(i + crowd.waiters - 1) % #places + 1]  -- leases, then waiters
      local one = read_info(crowd, holder)
      answers[n][i] = row(holder, one.fence, one.since, one.renewed + one.life, one.ttl, one.limit,
        one.meta)
    end
  end
end
return answers
