-- End attempts. No job is named twice.
--
-- ARGV: now, bells, for each: id, how it ends - fence, state, whether it yields to a cancel, failures and
--       losses to add, mark, delay, reason; then as in a record: result, error, history
-- Returns for each 0 if it is lost, 1 if it was settled, 2 if it was settled so before, 3 if it cannot be
-- read and was set aside, 4 if it was cancelled instead.

-- Return how an attempt ends; a history that is nil stays as it is.
local function read_end(words)
  local last, offset = {}, 0
  offset, last.fence, last.state, last.yields, last.failures, last.losses, last.mark, last.delay,
    last.reason = decode_some(words, 8)
  offset, last.result = read_bin(words, offset)
  offset, last.error = read_bin(words, offset)
  offset, last.history = read_bin(words, offset)
  return last
end

-- Write what every settlement changes.
local function note_end(job, last)
  job.settled_fence, job.settled_as = last.fence, last.mark
  job.failures, job.losses = job.failures + last.failures, job.losses + last.losses
  job.history, job.error = last.history or job.history, last.error or job.error
end

local function settle(id, last)
  local job = job_of(id)
  if drop_unreadable(id) then
    return 3
  elseif job and job.settled_fence == last.fence and job.settled_as == last.mark then
    return 2
  elseif not job or job.state ~= RUNS or job.fence ~= last.fence then
    return 0
  end
  note_end(job, last)
  if job.cancelling == 1 and (last.state == WAITS or last.yields) then
    finish(job, CANCELLED)
    return 4
  elseif last.state == WAITS then
    wait(job, last.delay)  -- without a delay it keeps its place in the queue
    return 1
  end
  if last.state ~= CANCELLED then
    job.error = last.error
  end
  if last.state == SUCCEEDED then
    job.reason = ''
  elseif last.reason ~= '' then
    job.reason = last.reason
  end
  job.result = last.result
  finish(job, last.state)
  return 1
end

local ids, answers = {}, {}
for at = 3, #ARGV, 2 do
  ids[#ids + 1] = ARGV[at]
end
read_all(ids)
for n, id in ipairs(ids) do
  answers[n] = settle(id, read_end(ARGV[2 * n + 2]))
end
flush()
ring()
return answers
