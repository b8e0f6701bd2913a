-- Return some leases and waiters of a large crowd. A series of calls returns all that exist throughout.
-- One may be returned twice, and those that come or go meanwhile may be missing.
--
-- KEYS: names, the four of the lease key
-- ARGV: now, the lease key's name, cursor, how many to look at, about
-- Returns {next cursor, '0' at the end, then {holder, fence, ttl, limit, meta, left, held for, place}...};
-- nothing if it is no crowd any more.

-- Insert crowd.lua here.

local kind, _, _, _, _, limits = look(2, ARGV[2], head_of(2))
if kind ~= CROWD then
  return {}
end
local crowd = {at = 2, limits = limits}
local cursor, found = unpack(call('HSCAN', KEYS[4], ARGV[3], 'COUNT', ARGV[4]))
local answers = {cursor}
for n = 1, #found, 2 do
  local place, one = call('ZSCORE', KEYS[3], found[n]), read_info(crowd, found[n])
  local left = one.renewed + one.life - now
  if place and left > 0 then
    answers[#answers + 1] = {found[n], one.fence, one.ttl, one.limit, one.meta, left,
      math.max(0, now - one.since), place}
  end
end
return answers
