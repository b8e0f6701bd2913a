-- Return the names of queues: of waiting jobs those after a name, in order and at most 500; with
-- no name given also those with running jobs, and the paused ones.
--
-- ARGV: now, bells, name or ''
-- Returns {names of queues with waiting jobs, names of others, names whose pause cannot be read}.

local waiting, others, unreadable = {}, {}, {}
local from = ARGV[3] == '' and '-' or '[' .. ARGV[3] .. '\1'
level(WAITING)
while #waiting < 500 do
  local first = call('ZRANGEBYLEX', WAITING, from, '+', 'LIMIT', 0, 1)[1]
  if not first then
    break
  end
  local name = string.match(first, '^[^%z]*')
  waiting[#waiting + 1] = name
  from = '[' .. name .. '\1'
end
if ARGV[3] == '' then
  others = call('HKEYS', RUNNING)
  local paused = call('HGETALL', PAUSED)
  for n = 1, #paused, 2 do
    local till = tonumber(string.match(paused[n + 1], '^%S+'))
    if not till or till ~= till then
      unreadable[#unreadable + 1] = paused[n]
    elseif till > now then
      others[#others + 1] = paused[n]
    else
      call('HDEL', PAUSED, paused[n])
    end
  end
end
return {waiting, others, unreadable}
