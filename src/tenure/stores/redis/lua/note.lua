-- Store what running jobs say about themselves.
--
-- ARGV: now, bells, replica, for each: id, fence, progress or '', message or '' and 'm' before it,
--       checkpoint as in a record or ''
-- Returns for each 1, 0 if the job does not run under this fence, 2 if it cannot be read and was set aside.

local answers = {}
for at = 4, #ARGV, 5 do
  local job = job_of(ARGV[at])
  local runs = job and job.state == RUNS and job.fence == tonumber(ARGV[at + 1])
  answers[#answers + 1] = runs and 1 or drop_unreadable(ARGV[3], ARGV[at]) and 2 or 0
  if runs then
    job.progress = tonumber(ARGV[at + 2]) or job.progress
    if ARGV[at + 3] ~= '' then
      job.message = sub(ARGV[at + 3], 2)
    end
    if ARGV[at + 4] ~= '' then
      job.checkpoint = bytes_in(ARGV[at + 4])
    end
    save_change(job)
  end
end
flush()
ring()
return answers
