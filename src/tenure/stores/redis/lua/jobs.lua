-- In front of every job script, after record.lua: what is stored of jobs, and the moves that several
-- scripts make. All keys of the jobs are passed to every script, in this order:

local STATE      = KEYS[1]   -- hash id -> what changes in a job's life, see record.lua
local FIXED      = KEYS[2]   -- hash id -> what does not
local WAITING    = KEYS[3]   -- zset of places: queue NUL, '!' while it waits for its time, priority
                             -- due id NUL micros; see `place`
local HELD       = KEYS[4]   -- zset of replica NUL id NUL queue
local UNFINISHED = KEYS[5]   -- zset of ids
local TAGS       = KEYS[6]   -- zset of tag NUL id
local FINISHED   = KEYS[7]   -- zset id, and NUL if it has tags -> end of its retention; of BROKEN:
                             -- NUL id -> when it is removed
local DEADLINES  = KEYS[8]   -- zset id -> deadline of the running attempt
local CANCELS    = KEYS[9]   -- zset of replica NUL id: running, with a cancel pending
local RUNNING    = KEYS[10]  -- hash queue -> how many run
local UNIQUE     = KEYS[11]  -- hash unique key -> id, digest, until, 1 if it stays with its job
local ENDS       = KEYS[12]  -- zset unique key of a finished job -> until
local PAUSED     = KEYS[13]  -- hash queue -> until, then its reason after a space, if there is one
local SLEEPING   = KEYS[14]  -- hash of the queues with idle workers, to wake at the next job
local REPLICAS   = KEYS[15]  -- hash replica -> joined, renewed, ttl, dead, claim_no, meta; if it is
                             -- dead, the replica that takes its jobs, and until when
local EXPIRY     = KEYS[16]  -- zset replica -> when it expires; 0 once it is dead
local RENEWED    = KEYS[17]  -- zset replica -> when it was renewed last
local JOINED     = KEYS[18]  -- zset replica -> when it joined
local CLAIMS     = KEYS[19]  -- hash replica -> the ids that its last claim got
local BROKEN     = KEYS[20]  -- hash id -> record and what is fixed of a job that was set aside
local INDEX      = {[2] = KEYS[21], [3] = KEYS[22], [4] = KEYS[23]}  -- state -> zset of ids
local LIVE       = KEYS[24]  -- zset of schedule NUL id NUL queue: unfinished runs, see `place_of_run`
local PAUSES     = KEYS[25]  -- zset id -> when its delay began, of delayed jobs

-- Zsets without "->" have the score 0 everywhere, so they are ordered by bytes and serve as indexes.
-- Names never contain NUL, so a NUL ends each name.
--
-- One zset holds all queues and priorities: its key does not depend on the queue, and a batch enters or
-- leaves it by one command. The time of a script goes into commands, their arguments, and above all the
-- bytes for the append-only file. So the payload is never written again after the insert, and numbers
-- that many jobs share are converted to text once.

-- Moves do not write at once: their changes are collected by key, and `flush` writes each key by one
-- command for all jobs. Each job moves at most once per script.
local gathered, order, running_change = {}, {}, {}

-- Return the words of the collected command on a key.
local function words_for(command, key)
  local commands = gathered[key]
  if not commands then
    commands = {}
    gathered[key] = commands
  end
  local words = commands[command]
  if not words then
    words = {command, key}
    commands[command], order[#order + 1] = words, words
  end
  return words
end

local function gather(command, key, first, second)
  local words = words_for(command, key)
  local size = #words
  words[size + 1], words[size + 2] = first, second
end

local function count_running(queue, change)
  running_change[queue] = (running_change[queue] or 0) + change
end

local function write_running(queue, change)
  local count = redis.pcall('HINCRBY', RUNNING, queue, change)
  if type(count) == 'table' then
    -- It is damaged: no number, or too large. Start again.
    call('HSET', RUNNING, queue, change)
    count = change
  end
  if count <= 0 then
    call('HDEL', RUNNING, queue)
  end
end

-- Lua cannot pass more than about 8000 values to a command. An even number leaves pairs together.
local WORDS_MAX = 4000

local function flush()
  for _, words in ipairs(order) do
    for first = 3, #words, WORDS_MAX do
      call(words[1], words[2], unpack(words, first, min(#words, first + WORDS_MAX - 1)))
    end
  end
  for queue, change in pairs(running_change) do
    write_running(queue, change)
  end
  gathered, order, running_change = {}, {}, {}
end

local function write(job)
  gather('HSET', STATE, job.id, beginning_of(job)
    .. bin(job.checkpoint) .. bin(job.result) .. bin(job.error) .. bin(job.history))
end

-- Return the job with this id; nil if there is none or it is unreadable. Always the same table, because
-- its changes may not have been written yet.
local known = {}

local function keep_known(id, record)
  local readable, job = pcall(read, id, record or '')
  known[id] = readable and job
  return known[id] or nil
end

local function job_of(id)
  if known[id] == nil then
    return keep_known(id, call('HGET', STATE, id))
  end
  return known[id] or nil
end

-- The place of a waiting job, in order of priority, due time in whole milliseconds, id. The rest of the
-- due time comes last, where it does not affect the order.
--
-- Delayed jobs come before all others of their queue, after a mark. A claim removes the mark when they
-- are due. The others may start whatever the clock shows, so a clock that is set back postpones none of
-- them.
local LATER = '!'

local function place(queue, priority, due, id, later)
  return queue .. '\0' .. (later and LATER or '') .. priority .. format('%016d', floor(due / 1000))
    .. id .. '\0' .. format('%03d', due % 1000)
end

-- Remove the place of a job.
local function leave_queue(job)
  gather('ZREM', WAITING, place(job.queue, job.priority, job.due, job.id),
    place(job.queue, job.priority, job.due, job.id, true))
  gather('ZREM', PAUSES, job.id)
end

-- Whether a member of WAITING is such a place; `at` is where its due time begins.
local function is_place(member, at)
  return string.find(member, '^%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d.', at - 1)
    and string.find(sub(member, -4), '^%z%d%d%d$')
end

-- Reset scores other than 0 in an index, with which it is not ordered by bytes. Only a change by hand
-- creates them, and they are at the ends. Returns whether there were any.
--
-- Scripts that only read call it too. On a full server, deleting nothing first allows the write (see
-- scripts.py). If no write is allowed, they continue without it.
local function level(index)
  local leveled = false
  for _, at in ipairs({0, -1}) do
    for _ = 1, 1000 do
      local found = call('ZRANGE', index, at, at, 'WITHSCORES')
      if not found[1] or tonumber(found[2]) == 0 then
        break
      end
      redis.pcall('ZREM', index, '')
      local reply = redis.pcall('ZADD', index, '0', found[1])
      if type(reply) == 'table' then
        break
      end
      leveled = true
    end
  end
  return leveled
end

-- Wake-ups are hints, sent after all writes, at most one of each kind per call. A refusal (a user
-- without rights on the channel) must not fail the script after its writes.
local awaited, changed = {}, {}  -- queues whose next due time may be earlier now; ids of jobs

local function publish(kind, names)
  redis.pcall('PUBLISH', ARGV[2] .. kind, table.concat(names, '\0'))
end

-- A worker sets a flag before it sleeps, and only the first job after that is announced. All idle
-- workers get the wake-up, and set the flag again before they claim.
local function ring()
  if next(awaited) then
    local queues, asleep = {}, {}
    for queue in pairs(awaited) do
      queues[#queues + 1] = queue
    end
    for n, flag in ipairs(call('HMGET', SLEEPING, unpack(queues))) do
      if flag then
        asleep[#asleep + 1] = queues[n]
      end
    end
    if #asleep > 0 then
      call('HDEL', SLEEPING, unpack(asleep))
      publish('queue', asleep)
    end
  end
  if #changed > 0 then
    publish('job', changed)
  end
end

-- Remove a job from its replica, if it runs.
local function stop(job)
  if job.state ~= RUNS then
    return
  end
  gather('ZREM', HELD, job.replica .. '\0' .. job.id .. '\0' .. job.queue)
  if job.timeout >= 0 then
    gather('ZREM', DEADLINES, job.id)
  end
  if job.cancelling == 1 then
    gather('ZREM', CANCELS, job.replica .. '\0' .. job.id)
  end
  count_running(job.queue, -1)
  job.replica, job.cancelling = '', 0
end

local function save_change(job)
  job.revision = job.revision + 1
  changed[#changed + 1] = job.id
  write(job)
end

-- A damaged run of a schedule may have left its entry in LIVE, so counts of runs check UNFINISHED as
-- well.
local function place_of_run(schedule, id, queue)
  return schedule .. '\0' .. id .. '\0' .. queue
end

-- Return the record of a unique key: id, digest, until when, 1 if it stays with its job. Nothing if it is
-- free or unreadable.
local function read_key(key)
  local taken = call('HGET', UNIQUE, key)
  local readable, id, digest, till, with_job = pcall(decode, taken or '')
  if readable and type(id) == 'string' and type(digest) == 'string' and is_instant(till) then
    return id, digest, till, with_job
  end
end

-- Return how long a finished job is kept.
local function retention_of(job)
  return job.state == FAILED and job.retention_failed or job.retention
end

-- A unique key is taken while its job is unfinished, and afterwards until an instant, at least the end of
-- the retention if it stays with its job.
local function let_go_of_key(job)
  if job.schedule ~= '' then
    gather('ZREM', LIVE, place_of_run(job.schedule, job.id, job.queue))
  end
  if not job.key then
    return
  end
  local id, digest, till, with_job = read_key(job.key)
  if id == job.id then
    local kept = with_job == 1 and max(till, now + retention_of(job)) or till
    if kept <= now then
      call('HDEL', UNIQUE, job.key)
    else
      if kept > till then
        gather('HSET', UNIQUE, job.key, pack(id, digest, kept, 1))
      end
      gather('ZADD', ENDS, kept, job.key)
    end
  end
end

-- Return the options of a job's unique key: digest, how long it is kept, 1 if it stays with its job.
-- Nothing if they are unreadable.
local function demands_of(fixed)
  local readable, _, _, _, unique = pcall(decode_some, fixed or '', 3)
  if readable and type(unique) == 'table' and type(unique[1]) == 'string'
    and is_whole(unique[2], 0, SPAN_MAX) and (unique[3] == 0 or unique[3] == 1) then
    return unpack(unique, 1, 3)
  end
end

local function take_key(key, id, digest, keep, with_job)
  call('HSET', UNIQUE, key, pack(id, digest, now + keep, with_job))
  call('ZREM', ENDS, key)
end

-- Return the id and the digest of the job that has a unique key.
local function owner_of(key)
  local id, digest, till = read_key(key)
  if not id then
    return nil
  end
  local job = till <= now and job_of(id)
  if till > now or (job and job.state <= RUNS) then
    return id, digest
  end
end

local function member_of_finished(job)
  return job.tag_count > 0 and job.id .. '\0' or job.id
end

local function finish(job, state)
  stop(job)
  job.state, job.finished = state, now
  gather('ZREM', UNFINISHED, job.id)
  gather('ZADD', INDEX[state], '0', job.id)
  gather('ZADD', FINISHED, now + retention_of(job), member_of_finished(job))
  let_go_of_key(job)
  save_change(job)
end

-- Let a job wait, with or without a delay. Returns when it is due.
local function enter_queue(id, queue, priority, due, delay)
  if delay > 0 then
    due = now + delay
    gather('ZADD', PAUSES, now, id)
  end
  gather('ZADD', WAITING, '0', place(queue, priority, due, id, delay > 0))
  if delay <= SOON then
    awaited[queue] = true
  end
  return due
end

local function wait(job, delay)
  stop(job)
  job.state, job.fence = WAITS, max(job.fence + 1, now)
  job.due = enter_queue(job.id, job.queue, job.priority, job.due, delay)
  save_change(job)
end
