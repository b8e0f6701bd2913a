-- Cancel jobs: what waits at once, what runs by a request.
--
-- ARGV: now, bells, reason, ids
-- Returns for each 0 if there is no such job, 1 cancelled, 2 requested, 3 finished.

local answers, told, replicas = {}, {}, {}
for n = 4, #ARGV do
  local id = ARGV[n]
  local job = job_of(id)
  if not job then
    answers[n - 3] = 0
  elseif job.state > RUNS then
    answers[n - 3] = 3
  elseif job.state == RUNS then
    answers[n - 3] = 2
    if job.cancelling == 0 then
      job.cancelling, job.reason = 1, ARGV[3]
      gather('ZADD', CANCELS, '0', job.replica .. '\0' .. id)
      save_change(job)
    end
    if not told[job.replica] then
      told[job.replica] = true
      replicas[#replicas + 1] = job.replica
    end
  else
    answers[n - 3] = 1
    gather('ZREM', WAITING, place(job.queue, job.priority, job.due, id))
    job.reason = ARGV[3]
    finish(job, CANCELLED)
  end
end
flush()
ring()
if #replicas > 0 then
  publish('replica', replicas)
end
return answers
