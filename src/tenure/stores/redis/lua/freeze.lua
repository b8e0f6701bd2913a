-- Let the ticks of a schedule, or of all, be skipped.
--
-- ARGV: now, bells, name, until or '', reason
-- Returns {1}, or {0} if there is no such schedule.

if ARGV[3] ~= EVERYTHING and not schedule_of(ARGV[3]) then
  return {0}
end
write_freeze(ARGV[3], now, tonumber(ARGV[4]), ARGV[5])
return {1}
