-- Forget what crashed holders left behind; released keys are gone already.
--
-- KEYS: names, then for each lease key its four
-- ARGV: now, idle, then the lease keys' names
-- Returns {how many of those forgotten were last granted `idle` ago}.

local idle = tonumber(ARGV[2])

local function idle_for(at)
  local head = call('GET', KEYS[at])
  if not head then
    return math.huge  -- collected by Redis, a day after its end at the earliest
  end
  local _, _, _, granted = decode(head)  -- in the same position in both kinds of head
  return now - granted
end

local pruned = 0
for n = 1, #ARGV - 2 do
  local at, name = 4 * n - 2, ARGV[n + 2]
  local unused = idle_for(at) >= idle
  if not look(at, name) then
    call('ZREM', NAMES, name)
    pruned = pruned + (unused and 1 or 0)
  end
end
return {pruned}
