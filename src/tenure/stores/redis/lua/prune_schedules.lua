-- Forget schedules that nobody declares any more, that have no unfinished run and no successor.
--
-- ARGV: now, bells, idle, how many to leave out, how many to look at,
--       names that were forgotten by this very call before
-- Returns {how many were looked at, names of those that are forgotten now}.

local forgotten_before = {}
for n = 6, #ARGV do
  forgotten_before[ARGV[n]] = true
end

-- A name at rest might come back with a roll-back, so it goes by a later call than its successor.
local function has_successor(one)
  return one.successor ~= '' and (forgotten_before[one.successor] or schedule_of(one.successor))
end

local function forget(name, one)
  local places = one and places_of_decisions(one, DECISIONS_MAX) or {}
  if #places > 0 then
    call('HDEL', DECISIONS, unpack(places))
  end
  call('HDEL', SCHEDULES, name)
  call('HDEL', DEFINITIONS, name)
  call('HDEL', FREEZES, name)
  call('ZREM', NAMES, name)
  call('ZREM', DECLARED, name)
end

local names, schedules = {}, {}
local idle = call('ZRANGEBYSCORE', DECLARED, '-inf', now - ARGV[3], 'LIMIT', ARGV[4], ARGV[5])
for _, name in ipairs(idle) do
  local one = schedule_of(name)
  if not (one and has_successor(one)) and #live_runs(name, 1) == 0 then
    names[#names + 1], schedules[name] = name, one
  end
end
for _, name in ipairs(names) do
  forget(name, schedules[name])
end
return {#idle, names}
