-- End a freeze.
--
-- ARGV: now, bells, name
-- Returns {1}, or {0} if there is none that has not ended.

local freeze = freeze_of(ARGV[3])
if not freeze or (freeze.till and freeze.till <= now) then
  return {0}
end
write_freeze(ARGV[3], freeze.since, now, freeze.reason)
return {1}
