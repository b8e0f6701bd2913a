-- Pause a queue, or end its pause.
--
-- ARGV: now, bells, queue, time, 'inf' or '' to resume

if ARGV[4] == '' then
  call('HDEL', PAUSED, ARGV[3])
  awaited[ARGV[3]] = true
  ring()
else
  call('HSET', PAUSED, ARGV[3], ARGV[4] == 'inf' and 'inf' or now + ARGV[4])
end
return {}
