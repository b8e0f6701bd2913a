-- Return jobs that nobody can finish.
--
-- ARGV: now, bells, limit, then ids to look for; without any all
-- Returns {ids of those that were set aside, time until each is removed,
--   ids of those on replicas that are not known, their replicas}.

local limit, wanted = tonumber(ARGV[3]), #ARGV > 3 and {}
for n = 4, #ARGV do
  wanted[ARGV[n]] = true
end

local aside, left, orphans, replicas = {}, {}, {}, {}
for _, id in ipairs(call('HKEYS', BROKEN)) do
  if #aside < limit and (not wanted or wanted[id]) then
    local till = tonumber(call('ZSCORE', FINISHED, '\0' .. id) or now)
    aside[#aside + 1], left[#left + 1] = id, max(0, min(till - now, SPAN_MAX))
  end
end
for _, name in ipairs(holders(1000)) do
  if not replica_of(name) then
    for _, held in ipairs(held_by(name, limit)) do
      if #orphans < limit and (not wanted or wanted[held.id]) then
        orphans[#orphans + 1], replicas[#replicas + 1] = held.id, name
      end
    end
  end
end
return {aside, left, orphans, replicas}
