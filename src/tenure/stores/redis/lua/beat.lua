-- Give replicas their full ttl again. Unknown ones may join.
--
-- ARGV: now, bells, ttl, by how much deadlines are postponed, '=' and the meta of those that join or '',
--       replicas
-- KEYS, after those of all job scripts, if the caller leaves stats: a hash source -> stats, and a zset
--       source -> when it has left them. Then ARGV ends with source, stats, and how long they are kept.
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

-- Keep stats for readers, and forget those that are too old.
local function leave_stats(source, body, kept_for)
  local old = call('ZRANGEBYSCORE', KEYS[27], '-inf', now - kept_for, 'LIMIT', 0, 100)
  if #old > 0 then
    call('HDEL', KEYS[26], unpack(old))
    call('ZREM', KEYS[27], unpack(old))
  end
  call('HSET', KEYS[26], source, body)
  call('ZADD', KEYS[27], now, source)
  -- The last worker of all leaves nothing behind for long.
  for key = 26, 27 do
    call('PEXPIRE', KEYS[key], floor(kept_for / 500))
  end
end

local last = #ARGV
if KEYS[26] then
  leave_stats(ARGV[last - 2], ARGV[last - 1], tonumber(ARGV[last]))
  last = last - 3
end
for n = 6, last do
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
for n = 6, last do
  local from, till = '[' .. ARGV[n] .. '\0', '(' .. ARGV[n] .. '\1'
  answers[n - 2] = {}
  if alive[n] then
    local cancels = call('ZRANGEBYLEX', CANCELS, from, till, 'LIMIT', 0, CANCELS_MAX)
    for i, member in ipairs(cancels) do
      cancels[i] = sub(member, #ARGV[n] + 2)
    end
    answers[n - 2] = {call('ZLEXCOUNT', HELD, from, till), cancels}
  end
end
return answers
