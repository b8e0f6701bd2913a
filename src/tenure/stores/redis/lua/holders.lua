-- Prelude of every job script, after jobs.lua: jobs of replicas, and jobs that are set aside.

-- Remove the tags of a job that its record names.
local function forget_tags_of(id, fixed)
  local tagged, _, _, tags = pcall(decode_some, fixed, 2)
  for _, tag in ipairs(tagged and type(tags) == 'table' and tags or {}) do
    call('ZREM', TAGS, tostring(tag) .. '\0' .. id)
  end
end

-- Return the queue, the unique key and the schedule in a record, as far as they are readable.
local function traces_in(record)
  local readable, _, _, _, _, _, queue, _, _, key, schedule = pcall(decode_some, record, 9)
  if readable and type(queue) == 'string' and type(schedule) == 'string' then
    return queue, type(key) == 'string' and key or nil, schedule
  end
end

-- Set aside an unreadable job: it is kept for inspection, and blocks no other job. It is pruned with the
-- finished jobs after a week. Its unique key is free as if it had finished.
local function set_aside(id, record)
  local fixed = call('HGET', FIXED, id) or ''
  if record then
    call('HSET', BROKEN, id, record .. fixed)
    call('ZADD', FINISHED, now + ASIDE_FOR, '\0' .. id)
  end
  forget_tags_of(id, fixed)
  local queue, key, schedule = traces_in(record or '')
  if queue then
    let_go_of_key({id = id, queue = queue, key = key, schedule = schedule, retention = 0})
  end
  call('HDEL', STATE, id)
  call('HDEL', FIXED, id)
  call('ZREM', UNFINISHED, id)
  call('ZREM', DEADLINES, id)
  call('ZREM', PAUSES, id)
end

-- Remove a job from a replica, whatever the job's record says. Returns whether it was there.
local function drop_held(replica, id)
  local entry = replica .. '\0' .. id
  local member = call('ZRANGEBYLEX', HELD, '[' .. entry .. '\0', '(' .. entry .. '\1',
    'LIMIT', 0, 1)[1]
  if member then
    call('ZREM', HELD, member)
    call('ZREM', CANCELS, entry)
    count_running(sub(member, #entry + 2), -1)
  end
  return member ~= nil
end

-- Return up to `limit` of what a replica runs, in order of id: the entries of HELD, split.
local function held_by(replica, limit)
  local found = call('ZRANGEBYLEX', HELD, '[' .. replica .. '\0', '(' .. replica .. '\1',
    'LIMIT', 0, limit)
  local held = {}
  for n, member in ipairs(found) do
    -- A damaged entry has no end of its id; then it is no job's.
    local id_ends = string.find(member, '\0', #replica + 2, true) or #member + 1
    held[n] = {member = member, id = sub(member, #replica + 2, id_ends - 1),
      queue = sub(member, id_ends + 1)}
  end
  return held
end

-- Return the names of up to `most` replicas that run jobs.
local function holders(most)
  local names, from = {}, '-'
  level(HELD)
  while #names < most do
    local first = call('ZRANGEBYLEX', HELD, from, '+', 'LIMIT', 0, 1)[1]
    if not first then
      break
    end
    names[#names + 1] = string.match(first, '^[^%z]*')
    from = '[' .. names[#names] .. '\1'
  end
  return names
end

-- Set aside an unreadable job that a replica runs. Returns whether it did. Its record does not name the
-- replica, so it searches all replicas that run jobs.
local function drop_unreadable(id)
  local record, dropped = not job_of(id) and call('HGET', STATE, id), false
  if not record then
    return false
  end
  for _, replica in ipairs(holders(1000)) do
    dropped = drop_held(replica, id) or dropped
  end
  if dropped then
    set_aside(id, record)
  end
  return dropped
end

-- Return the job of an entry. If the job is unreadable or does not run there, the entry is removed.
local function held_job(replica, one)
  local job = job_of(one.id)
  if job and job.state == RUNS and job.replica == replica then
    return job
  end
  call('ZREM', HELD, one.member)
  call('ZREM', CANCELS, replica .. '\0' .. one.id)
  count_running(one.queue, -1)
  if not job then
    set_aside(one.id, call('HGET', STATE, one.id))
  end
end

-- Return a replica; nil if there is none or its record is unreadable. Its beats are rejected then, and it
-- joins under another id.
local function replica_of(id)
  local readable, joined, renewed, ttl, dead, claim_no, meta, taker, taken_until =
    pcall(decode, call('HGET', REPLICAS, id) or '')
  if readable and is_instant(joined) and is_instant(renewed) and is_whole(ttl, 0, SPAN_MAX)
    and is_whole(claim_no, 0, INSTANT_MAX) and type(meta) == 'string' then
    return {id = id, joined = joined, renewed = renewed, ttl = ttl, dead = dead == 1,
      claim_no = claim_no, meta = meta, taker = taker,
      taken_until = is_instant(taken_until) and taken_until or 0}
  end
end

local function write_replica(one)
  local words = pack(one.joined, one.renewed, one.ttl, one.dead and 1 or 0, one.claim_no, one.meta)
  call('HSET', REPLICAS, one.id, one.dead and words .. pack(one.taker, one.taken_until) or words)
end

local function renew(one, instant, ttl)
  one.renewed, one.ttl = instant, ttl
  write_replica(one)
  call('ZADD', EXPIRY, one.dead and 0 or instant + ttl, one.id)
  call('ZADD', RENEWED, instant, one.id)
end

-- The clock was set back behind a renewal: counted from there, the replica would live too long.
local function clamp(one)
  if one.renewed > now then
    renew(one, now, one.ttl)
  end
end

local function clamp_all()
  local later = format('(%.0f', now)
  for _, id in ipairs(call('ZREVRANGEBYSCORE', RENEWED, '+inf', later, 'LIMIT', 0, 500)) do
    local one = replica_of(id)
    if one and one.renewed > now then
      clamp(one)
    else
      call('ZREM', RENEWED, id)  -- it is damaged; the next beat writes it again
    end
  end
end

local function forget_replica(id)
  call('HDEL', REPLICAS, id)
  call('HDEL', CLAIMS, id)
  call('ZREM', EXPIRY, id)
  call('ZREM', RENEWED, id)
  call('ZREM', JOINED, id)
end

