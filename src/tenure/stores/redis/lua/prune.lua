-- Forget lease keys on which nothing lives any more and that were last granted `idle` ago.
--
-- KEYS: names, then for each lease key its four
-- ARGV: now, idle, then the lease keys' names
-- Returns {how many}.
--
-- Released keys are gone already; this finds what crashed holders left behind.

local idle = tonumber(ARGV[2])

-- Redis collects a head a day after its end at the earliest; then only the name is left.
local function idle_for(at)
  local head = call('GET', KEYS[at])
  if not head then
    return math.huge
  end
  local _, _, _, granted = decode(head)  -- in the same position in both kinds of head
  return now - granted
end

local pruned = 0
for n = 1, #ARGV - 2 do
  local at, name = 4 * n - 2, ARGV[n + 2]
  if idle_for(at) >= idle and not look(at, name) then
    call('ZREM', NAMES, name)
    pruned = pruned + 1
  end
end
return {pruned}
