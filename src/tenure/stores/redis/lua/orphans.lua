-- Find jobs of expired replicas, or of a given one, and those that are past their deadline.
--
-- ARGV: now, bells, who asks, for how long replicas are left to it, replica or '', limit, grace,
--       instant to go by or ''
-- Returns now, {id, replica} of each job that cannot be read and was set aside, the replicas that were not dead
--   before, then for each other job its id, its replica, its record, what is fixed; both without what is large.

local by, reserved, named, limit = ARGV[3], tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
local grace, till = tonumber(ARGV[7]), min(now, tonumber(ARGV[8]) or now)
local aside, dead, answers, seen, count = {}, {}, {}, {}, 0
local NO_PAYLOAD = '\196\000'

-- Only larger records and fixed parts have a checkpoint or payload worth removing here. The client removes
-- smaller ones, which takes less time than taking records apart in a script.
local SMALL = 1000
-- How many payloads are in memory at a time.
local PIECE = 20

local function answer_aside(id, replica)
  aside[#aside + 1] = {id, replica}
  count = count + 1
end

local function answer_with(id, replica, record, fixed)
  local size = #answers
  answers[size + 1], answers[size + 2], answers[size + 3], answers[size + 4] =
    id, replica, record, fixed
  seen[id], count = true, count + 1
end

-- Add a job to the answer. It is set aside if its fixed part is unreadable.
local function answer_job(job, fixed)
  if seen[job.id] then
    return
  end
  local readable, ends = pcall(decode_some, fixed or '', 5)  -- all but the payload
  if not readable then
    drop_held(job.replica, job.id)
    answer_aside(job.id, job.replica)
    set_aside(job.id, call('HGET', STATE, job.id))
    return
  end
  local record = beginning_of(job) .. bin() .. bin() .. bin() .. bin(job.history)
  answer_with(job.id, job.replica, record, sub(fixed, 1, ends) .. NO_PAYLOAD)
end

-- Whether a small record says that its job runs on a replica, passed in its packed form. The client and
-- `settle` check the rest.
local function runs_there(record, packed)
  if not record or #record > SMALL or #record < 3 then
    return false
  end
  local size = 256 * byte(record, 2) + byte(record, 3)
  return byte(record, size + 1) == RUNS
    and sub(record, size + MIDDLE_SIZE + 1, size + MIDDLE_SIZE + #packed) == packed
end

local function look_at_held(replica, held, record, fixed, packed)
  if fixed and #fixed <= SMALL and runs_there(record, packed) then
    if not seen[held.id] then
      answer_with(held.id, replica, record, fixed)
    end
    return
  end
  local job = held_job(replica, held)
  if job then
    answer_job(job, fixed)
  elseif not job_of(held.id) then
    answer_aside(held.id, replica)
  end
end

-- Visit the jobs of a replica. The replica is removed if it has none.
local function look_at(replica)
  local held, packed = held_by(replica, limit - count), pack(replica)
  for first = 1, #held, PIECE do
    local last, ids = min(#held, first + PIECE - 1), {}
    for n = first, last do
      ids[n - first + 1] = held[n].id
    end
    local records, fixed = call('HMGET', STATE, unpack(ids)), call('HMGET', FIXED, unpack(ids))
    for n = first, last do
      look_at_held(replica, held[n], records[n - first + 1], fixed[n - first + 1], packed)
    end
  end
  if #held_by(replica, 1) == 0 then
    forget_replica(replica)
  end
end

-- Mark a replica as dead, and reserve it for the caller.
local function take(one)
  if not one.dead then
    dead[#dead + 1] = one.id
  end
  one.dead, one.taker, one.taken_until = true, by, now + reserved
  write_replica(one)
  call('ZADD', EXPIRY, 0, one.id)  -- found again, even if the clock is set back
end

local function is_left_to_others(one)
  return one.dead and one.taker ~= by and one.taken_until > now and one.taken_until <= now + reserved
end

local function look_at_expired()
  for _, id in ipairs(call('ZRANGEBYSCORE', EXPIRY, '-inf', till, 'LIMIT', 0, 1000)) do
    if count == limit then
      return  -- replicas that were not visited may still revive
    end
    local one = replica_of(id)
    if not (one and is_left_to_others(one)) then
      if one then
        take(one)
      end
      look_at(id)
    end
  end
end

local function look_at_overdue()
  for _, id in ipairs(call('ZRANGEBYSCORE', DEADLINES, '-inf', till - grace, 'LIMIT', 0, limit - count)) do
    local job = job_of(id)
    if job and job.state == RUNS then
      answer_job(job, call('HGET', FIXED, id))
    elseif job then
      call('ZREM', DEADLINES, id)
    else
      -- Its replica is unknown; if it dies later, its jobs are set aside as well.
      set_aside(id, call('HGET', STATE, id))
      answer_aside(id, '')
    end
  end
end

-- Jobs of unknown or unreadable replicas, which no beat renews. Only a change by hand creates them.
local function look_at_strangers()
  for _, name in ipairs(holders(1000)) do
    if count == limit then
      return
    end
    local score = call('ZSCORE', EXPIRY, name)
    if not replica_of(name) and not (score and tonumber(score) <= now + SPAN_MAX) then
      look_at(name)
    end
  end
end

level(HELD)
if named ~= '' then
  local one = replica_of(named)
  if one then
    take(one)
  end
  look_at(named)
else
  clamp_all()
  look_at_expired()
  if count < limit then
    look_at_overdue()
  end
  look_at_strangers()
end
flush()
ring()
return {now, aside, dead, unpack(answers)}
