-- Return the leases and waiters of lease keys.
--
-- KEYS: names, then for each lease key its four
-- ARGV: now, then the lease keys' names
-- Returns for each lease key a list of {holder, fence, ttl, limit, meta, left, held for}; waiters
-- have the fence 0 and come last, in order of arrival. {''} in the list: the lease cannot be read.
-- It ends before the first lease key with more holders than one script may visit: see `members`.

local function row(holder, fence, since, ends, ttl, limit, meta)
  return {holder, fence, ttl, limit, meta, ends - now, math.max(0, now - since)}
end

local answers, crowded = {}, {}
for n = 1, #ARGV - 1 do
  local at, name = 4 * n - 2, ARGV[n + 1]
  local kind, holder, fence, since, renewed, ttl, limit, meta =
    look(at, name, head_of(at))
  answers[n] = {}
  if kind == CROWD then
    crowded[#crowded + 1] = n
  elseif kind == UNREADABLE then
    answers[n] = {{''}}
  elseif kind then
    answers[n] = {row(holder, fence, since, renewed + ttl, ttl, limit, meta)}
  elseif not holder then  -- nothing has expired either
    call('ZREM', NAMES, name)  -- Redis collects leases of crashed holders, but not their names
  end
end
if #crowded == 0 then
  return answers
end

-- Insert crowd.lua here.

-- Redis serves no other client meanwhile, so it visits only this many holders and waiters. The first
-- crowd that is too large for the rest ends the answer.

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

-- It drops ended leases and repairs damaged crowds. A full server allows that after a deletion.
redis.pcall('ZREM', NAMES, '\0')
for _, n in ipairs(crowded) do
  local readable, rows = pcall(rows_of, 4 * n - 2, ARGV[n + 1])
  if readable and not rows then
    return {unpack(answers, 1, n - 1)}
  end
  answers[n] = readable and rows or {{''}}
end
return answers
