-- Pause a queue, or end its pause.
--
-- ARGV: now, bells, queue, time or 'inf' (0 ends a pause), reason or ''

local queue, length, reason = ARGV[3], ARGV[4], ARGV[5]
if length == '0' then
  call('HDEL', PAUSED, queue)
  awaited[queue] = true
  ring()
else
  local till = length == 'inf' and length or format('%.0f', now + length)
  call('HSET', PAUSED, queue, reason == '' and till or till .. ' ' .. reason)
end
return {}
