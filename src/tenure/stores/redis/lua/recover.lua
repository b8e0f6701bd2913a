-- Take jobs from expired replicas, and those that are past their deadline.
--
-- ARGV: now, bells, limit, most replicas to look at, grace, instant to go by or '', delays
-- Returns how many replicas were found, then for each job
--   {id, replica, state or -1 if it cannot be read, losses}.

local limit, grace, delays, answers = tonumber(ARGV[3]), tonumber(ARGV[5]), {}, {}
local by = min(now, tonumber(ARGV[6]) or now)
for n = 7, #ARGV do
  delays[n - 6] = ARGV[n]
end

local function take(replica)
  local room = limit - #answers
  local held = held_by(replica, room + 1)
  for n = 1, min(room, #held) do
    local one = held[n]
    local job = held_job(replica, one)
    if job then
      lose(job, delays)
      answers[#answers + 1] = {one.id, replica, job.state, job.losses}
    else
      answers[#answers + 1] = {one.id, replica, -1, 0}
    end
  end
  return #held <= room
end

-- Jobs of replicas that are not known, or whose records cannot be read: no beat renews those. Only
-- a change by hand makes such.
local function take_orphans()
  for _, name in ipairs(holders(1000)) do
    if #answers == limit then
      return
    end
    local score = call('ZSCORE', EXPIRY, name)
    if not replica_of(name) and not (score and tonumber(score) <= now + SPAN_MAX) and take(name) then
      forget_replica(name)
    end
  end
end

level(HELD)
clamp_all()
local expired = call('ZRANGEBYSCORE', EXPIRY, '-inf', by, 'LIMIT', 0, ARGV[4])
for _, id in ipairs(expired) do
  if #answers == limit then
    break  -- what was not touched may still revive
  end
  local one = replica_of(id)
  if one and not one.dead then
    one.dead = true
    write_replica(one)
    call('ZADD', EXPIRY, 0, id)  -- found again, even if the clock steps back
  end
  if take(id) then
    forget_replica(id)
  end
end
flush()
if #answers < limit then
  local late = call('ZRANGEBYSCORE', DEADLINES, '-inf', by - grace, 'LIMIT', 0, limit - #answers)
  for _, id in ipairs(late) do
    local job = job_of(id)
    if job and job.state == RUNS then
      local replica = job.replica
      lose(job, delays)
      answers[#answers + 1] = {id, replica, job.state, job.losses}
    elseif job then
      call('ZREM', DEADLINES, id)
    else
      -- Its replica is not known; if that dies one day, what it held is set aside as well.
      set_aside(id, call('HGET', STATE, id))
      answers[#answers + 1] = {id, '', -1, 0}
    end
  end
end
flush()
take_orphans()
flush()
ring()
return {#expired, unpack(answers)}
