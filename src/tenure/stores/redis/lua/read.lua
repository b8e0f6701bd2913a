-- Return the records of schedules by name. Missing ones are left out.
--
-- ARGV: now, bells, how many lines of the history of each at most, names

local FEW = 20  -- how many runs to visit; a larger count is not exact

-- Return the newest lines of a history, newest first.
local function newest_lines(one, most)
  local lines = {}
  for number = one.lines, max(1, one.lines - min(most, DECISIONS_MAX) + 1), -1 do
    lines[#lines + 1] = line_of(one, number)
  end
  return lines
end

local names, reply = {unpack(ARGV, 4)}, {now, broken_schedules, broken_lines}
for name, one in pairs(schedules_of(names)) do
  one.definition, one.declared = call('HGET', DEFINITIONS, name) or '', declared_at(name)
  if not is_text(one.definition) then  -- the next declared definition replaces it
    one.definition, broken_schedules[#broken_schedules + 1] = '', name
  end
  local live = count_live(name)
  one.live = live > 0 and live <= FEW and #live_runs(name, FEW) or min(live, COUNT_MAX)
  one.lines = newest_lines(one, tonumber(ARGV[3]))
  reply[#reply + 1] = pack(one)
end
return reply
