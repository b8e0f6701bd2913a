-- Give replicas their full ttl again. Unknown ones may join.
--
-- ARGV: now, bells, ttl, by how much deadlines are postponed, '=' and the meta of those that join or '',
--       replicas
-- Returns the instant, whether there is something to recover, whether RESTARTS_MAX pauses began anew,
-- then for each replica {held, cancels}, or {} if its record is gone or dead.

local ttl, ahead, joins, alive = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] ~= '', {}

local function postpone(replica)
  for _, held in ipairs(held_by(replica, 10000)) do
    local deadline = call('ZSCORE', DEADLINES, held.id)
    if deadline then
      call('ZADD', DEADLINES, deadline + ahead, held.id)
    end
  end
end

local function join(replica)
  call('ZADD', JOINED, now, replica)
  return {id = replica, joined = now, dead = false, claim_no = 0, meta = sub(ARGV[5], 2)}
end

for n = 6, #ARGV do
  local one = replica_of(ARGV[n]) or joins and join(ARGV[n])
  if one and not one.dead then
    renew(one, now, ttl)
    alive[n] = one
    if ahead > 0 then
      postpone(one.id)
    end
  end
end
clamp_all()
-- Restart each delay that begins in the future, because the clock was set back.
local future = '(' .. format('%.0f', now)
local paused = call('ZREVRANGEBYSCORE', PAUSES, '+inf', future, 'LIMIT', 0, RESTARTS_MAX)
for _, id in ipairs(paused) do
  local job, began = job_of(id), tonumber(call('ZSCORE', PAUSES, id))
  if job and job.state == WAITS and is_instant(began) then
    leave_queue(job)
    job.due = max(0, now + (job.due - began))
    gather('ZADD', WAITING, '0', place(job.queue, job.priority, job.due, job.id, true))
    gather('ZADD', PAUSES, now, id)
    save_change(job)
  else
    gather('ZREM', PAUSES, id)
  end
end
flush()
ring()
-- Checked after all of them were renewed, because none of these needs recovery.
local late = call('ZRANGEBYSCORE', EXPIRY, '-inf', now, 'LIMIT', 0, 1)[1]
  or call('ZRANGEBYSCORE', DEADLINES, '-inf', now, 'LIMIT', 0, 1)[1]
local answers = {now, late and 1 or 0, #paused == RESTARTS_MAX and 1 or 0}
for n = 6, #ARGV do
  local first, last = '[' .. ARGV[n] .. '\0', '(' .. ARGV[n] .. '\1'
  answers[n - 2] = {}
  if alive[n] then
    local cancels = call('ZRANGEBYLEX', CANCELS, first, last, 'LIMIT', 0, CANCELS_MAX)
    for i, member in ipairs(cancels) do
      cancels[i] = sub(member, #ARGV[n] + 2)
    end
    answers[n - 2] = {call('ZLEXCOUNT', HELD, first, last), cancels}
  end
end
return answers
