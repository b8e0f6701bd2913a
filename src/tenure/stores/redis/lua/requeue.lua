-- Make finished jobs wait again.
--
-- ARGV: now, bells, ids
-- Returns for each 0 if there is no such job, 1 requeued, 2 unfinished, 3 conflict,
-- 4 a run of a schedule.

local function requeue(id)
  local job = job_of(id)
  if not job then
    return 0
  elseif job.state <= RUNS then
    return 2
  elseif job.schedule ~= '' then
    return 4
  end
  if job.key then
    local owner = owner_of(job.key)
    if owner and owner ~= id then
      return 3
    end
    local digest, keep, with_job = demands_of(call('HGET', FIXED, id))
    if not digest then
      return 0
    end
    take_key(job.key, id, digest, keep, with_job)
  end
  gather('ZREM', FINISHED, member_of_finished(job))
  gather('ZREM', INDEX[job.state], id)
  gather('ZADD', UNFINISHED, '0', id)
  job.failures, job.losses, job.finished = 0, 0, 0
  job.result, job.error, job.progress = nil, nil, nil
  job.message, job.reason = '', ''
  job.due = now
  wait(job, 0)
  return 1
end

local answers = {}
for n = 3, #ARGV do
  answers[n - 2] = requeue(ARGV[n])
end
flush()
ring()
return answers
