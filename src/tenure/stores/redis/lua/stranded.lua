-- Return jobs that no worker can finish.
--
-- ARGV: now, bells, limit
-- Returns {id, time until it is removed} of jobs that were set aside, {id, replica} of jobs on unknown
-- replicas.

local limit, aside, orphans = tonumber(ARGV[3]), {}, {}
for _, id in ipairs(call('HKEYS', BROKEN)) do
  if #aside < limit then
    local till = tonumber(call('ZSCORE', FINISHED, '\0' .. id) or now)
    aside[#aside + 1] = {id, max(0, min(till - now, SPAN_MAX))}
  end
end
for _, name in ipairs(holders(1000)) do
  if not replica_of(name) then
    for _, held in ipairs(held_by(name, limit - #orphans)) do
      orphans[#orphans + 1] = {held.id, name}
    end
  end
end
return {aside, orphans}
