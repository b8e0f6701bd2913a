-- Store the progress and checkpoints of running jobs.
--
-- ARGV: now, bells, for each: id, what it says - fence, progress, message; then as in a record: checkpoint.
--       What is nil stays as it is.
-- Returns for each 1, 0 if the job does not run under this fence, 2 if it cannot be read and was set aside.

local answers = {}
for at = 3, #ARGV, 2 do
  local job, words = job_of(ARGV[at]), ARGV[at + 1]
  local offset, fence, progress, message = decode_some(words, 3)
  local _, checkpoint = read_bin(words, offset)
  local runs = job and job.state == RUNS and job.fence == fence
  answers[#answers + 1] = runs and 1 or drop_unreadable(ARGV[at]) and 2 or 0
  if runs then
    job.progress, job.message = progress or job.progress, message or job.message
    job.checkpoint = checkpoint or job.checkpoint
    save_change(job)
  end
end
flush()
ring()
return answers
