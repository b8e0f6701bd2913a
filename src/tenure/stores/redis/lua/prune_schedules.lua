-- Forget schedules that nobody declares any more and that have no unfinished run.
--
-- ARGV: now, bells, idle, how many to leave out, how many to look at
-- Returns {how many were forgotten, how many were looked at}.

local function forget(name)
  local one = schedule_of(name)
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

local forgotten = 0
local idle = call('ZRANGEBYSCORE', DECLARED, '-inf', now - ARGV[3], 'LIMIT', ARGV[4], ARGV[5])
for _, name in ipairs(idle) do
  if #live_runs(name, 1) == 0 then
    forget(name)
    forgotten = forgotten + 1
  end
end
return {forgotten, #idle}
