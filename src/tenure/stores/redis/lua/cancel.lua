-- Cancel jobs: waiting ones at once, running ones by a request.
--
-- ARGV: now, bells, reason, ids
-- Returns for each 0 if there is no such job, 1 cancelled, 2 requested, 3 finished.

local is_woken, woken = {}, {}  -- replicas that run cancelled jobs

-- Cancel a job: at once if it waits, by a request if it runs. Returns 1 cancelled, 2 requested, 3
-- finished.
local function cancel(job, reason)
  if job.state > RUNS then
    return 3
  elseif job.state == RUNS then
    if job.cancelling == 0 then
      job.cancelling, job.reason = 1, reason
      gather('ZADD', CANCELS, '0', job.replica .. '\0' .. job.id)
      save_change(job)
    end
    if not is_woken[job.replica] then
      is_woken[job.replica] = true
      woken[#woken + 1] = job.replica
    end
    return 2
  end
  leave_queue(job)
  job.reason = reason
  finish(job, CANCELLED)
  return 1
end

local answers = {}
for n = 4, #ARGV do
  local job = job_of(ARGV[n])
  answers[n - 3] = job and cancel(job, ARGV[3]) or 0
end
flush()
ring()
if #woken > 0 then
  publish('replica', woken)
end
return answers
