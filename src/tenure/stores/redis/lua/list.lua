-- Return what lives on lease keys.
--
-- KEYS: names, then for each lease key its four
-- ARGV: now, then the lease keys' names
-- Returns for each lease key a list of {holder, fence, ttl, limit, meta, left, held for}; waiters
-- have the fence 0 and come last, in order of arrival.

local function row(holder, one)
  return {
    holder, one.fence, one.ttl, one.limit, one.meta,
    one.renewed + one.life - now, math.max(0, now - one.since),
  }
end

local function rows(key)
  if key.holder then
    key.life = key.ttl
    return {row(key.holder, key)}
  end
  local places = call('ZRANGE', KEYS[key.at + 1], 0, -1)
  local found = {}
  for i = 1, #places do
    local holder = places[(i + key.waiters - 1) % #places + 1]  -- leases, then waiters
    found[i] = row(holder, read_info(key, holder))
  end
  return found
end

local answers = {}
for n = 1, #ARGV - 1 do
  local key = look(4 * n - 2, ARGV[n + 1])
  answers[n] = key and rows(key) or {}
  if not key then
    -- Redis collected the leases, long after their end; the name is collected here.
    call('ZREM', NAMES, ARGV[n + 1])
  end
end
return answers
