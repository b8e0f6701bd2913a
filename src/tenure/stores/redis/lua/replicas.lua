-- Return the known replicas in the order in which they joined.
--
-- ARGV: now, bells, first, last
-- Returns for each {id, meta, joined, ttl, left, dead, held}; {id} if its record cannot be read.

local answers = {}
for n, id in ipairs(call('ZRANGE', JOINED, ARGV[3], ARGV[4])) do
  local one = replica_of(id)
  answers[n] = {id}
  if one then
    answers[n] = {id, one.meta, one.joined, one.ttl, min(one.renewed, now) + one.ttl - now,
      one.dead and 1 or 0, call('ZLEXCOUNT', HELD, '[' .. id .. '\0', '(' .. id .. '\1')}
  end
end
return answers
