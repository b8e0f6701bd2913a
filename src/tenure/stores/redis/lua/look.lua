-- Return the records of schedules by name. Those that are not there are left out.
--
-- ARGV: now, bells, names

local FEW = 20  -- runs that are looked at, as nobody else is served meanwhile: more need not be exact

local names, reply = {unpack(ARGV, 3)}, {now, broken_schedules, broken_lines}
for name, one in pairs(schedules_of(names)) do
  one.definition, one.declared = call('HGET', DEFINITIONS, name) or '', declared_at(name)
  if not is_text(one.definition) then  -- the next one that is declared takes its place
    one.definition, broken_schedules[#broken_schedules + 1] = '', name
  end
  local live = count_live(name)
  one.live = live > 0 and live <= FEW and #live_runs(name, FEW) or min(live, COUNT_MAX)
  one.latest = one.lines > 0 and line_of(one, one.lines) or nil
  reply[#reply + 1] = pack(one)
end
return reply
