-- Return lines of a schedule's history, newest first.
--
-- ARGV: now, bells, name, limit

local reply, one = {now, broken_schedules, broken_lines}, schedules_of({ARGV[3]})[ARGV[3]]
local newest = one and one.lines or 0
for number = newest, max(1, newest - min(tonumber(ARGV[4]), DECISIONS_MAX) + 1), -1 do
  local line = line_of(one, number)
  reply[#reply + 1] = line and pack(line)
end
return reply
