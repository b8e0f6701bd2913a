-- In front of the scripts that cancel jobs, after jobs.lua.

local told, holders = {}, {}

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
    if not told[job.replica] then
      told[job.replica] = true
      holders[#holders + 1] = job.replica
    end
    return 2
  end
  leave_queue(job)
  job.reason = reason
  finish(job, CANCELLED)
  return 1
end

-- Wake the replicas that were asked, after everything is written.
local function ring_holders()
  if #holders > 0 then
    publish('replica', holders)
  end
end

