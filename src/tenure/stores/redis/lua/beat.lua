-- Give replicas their full ttl again.
--
-- ARGV: now, bells, ttl, most cancels, replicas
-- Returns whether there is something to recover, then for each replica {held, cancels}, or {} if
-- its record is gone or dead.

local ttl, alive, answers = tonumber(ARGV[3]), {}, {}
for n = 5, #ARGV do
  local one = replica_of(ARGV[n])
  if one and not one.dead then
    renew(one, now, ttl)
    alive[n] = one
  end
end
clamp_all()
-- Looked at after all of them were renewed: none of these needs recovery.
local late = call('ZRANGEBYSCORE', EXPIRY, '-inf', now, 'LIMIT', 0, 1)[1]
  or call('ZRANGEBYSCORE', DEADLINES, '-inf', now, 'LIMIT', 0, 1)[1]
answers[1] = late and 1 or 0
for n = 5, #ARGV do
  local first, last = '[' .. ARGV[n] .. '\0', '(' .. ARGV[n] .. '\1'
  answers[n - 3] = {}
  if alive[n] then
    local cancels = call('ZRANGEBYLEX', CANCELS, first, last, 'LIMIT', 0, ARGV[4])
    for i, member in ipairs(cancels) do
      cancels[i] = sub(member, #ARGV[n] + 2)
    end
    answers[n - 3] = {call('ZLEXCOUNT', HELD, first, last), cancels}
  end
end
return answers
