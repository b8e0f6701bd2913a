-- Hand back up to `limit` of what a replica runs; its record goes with the last of it.
--
-- ARGV: now, bells, replica, limit, number of delays, delays, ids of jobs that count a loss
-- Returns for each job {id, state or -1 if it cannot be read, losses}.

local replica, limit = ARGV[3], tonumber(ARGV[4])
local delays, started, answers = {}, {}, {}
for n = 1, tonumber(ARGV[5]) do
  delays[n] = ARGV[5 + n]
end
for n = 6 + #delays, #ARGV do
  started[ARGV[n]] = true
end

level(HELD)
local held = held_by(replica, limit)
for n, one in ipairs(held) do
  local job = held_job(replica, one)
  if not job then
    answers[n] = {one.id, -1, 0}
  else
    if started[one.id] then
      lose(job, delays)
    else
      give_back(job, 0)
    end
    answers[n] = {one.id, job.state, job.losses}
  end
end
if #held < limit then
  forget_replica(replica)
end
flush()
ring()
return answers
