-- Pause a queue, or end its pause.
--
-- ARGV: now, bells, queue, time or 'inf'; 0 ends a pause

local queue, length = ARGV[3], ARGV[4]
if length == '0' then
  call('HDEL', PAUSED, queue)
  awaited[queue] = true
  ring()
else
  call('HSET', PAUSED, queue, length == 'inf' and 'inf' or now + length)
end
return {}
