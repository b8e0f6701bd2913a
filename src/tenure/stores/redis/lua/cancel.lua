-- Cancel jobs: what waits at once, what runs by a request.
--
-- ARGV: now, bells, reason, ids
-- Returns for each 0 if there is no such job, 1 cancelled, 2 requested, 3 finished.

local answers = {}
for n = 4, #ARGV do
  local job = job_of(ARGV[n])
  answers[n - 3] = job and cancel(job, ARGV[3]) or 0
end
flush()
ring()
ring_holders()
return answers
