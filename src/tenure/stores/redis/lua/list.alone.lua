-- Return what lives on lease keys.
--
-- KEYS: names, then for each lease key its four
-- ARGV: now, then the lease keys' names
-- Returns for each lease key a list of {holder, fence, ttl, limit, meta, left, held for}; waiters
-- have the fence 0 and come last, in order of arrival. {''} in the list: what is there cannot be read.
-- It ends before the first lease key with more than this script may look at: `members` does that.

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
  else
    call('ZREM', NAMES, name)  -- Redis collects leases of crashed holders, but not their names
  end
end
if #crowded == 0 then
  return answers
end

