-- Prelude of every job script: the layout of a job's record, and how it is read and written.

local call, pcall, sub, byte, format = redis.call, pcall, string.sub, string.byte, string.format
local pack, decode, decode_some = cmsgpack.pack, cmsgpack.unpack, cmsgpack.unpack_limit
local min, max, floor = math.min, math.max, math.floor

local WAITS, RUNS, SUCCEEDED, FAILED, CANCELLED = 0, 1, 2, 3, 4

local now = tonumber(ARGV[1])  -- a test's clock, or empty for the server's
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- A record is a sequence of MessagePack values. Values that a move may change are in STATE, the others in
-- FIXED, because they are large and must not be written again with each move. The names are the fields of
-- core.jobs.records.JobRecord. Durations are microseconds; -1 is no timeout.
--
--   part    field             encoding
--
--   head    size              uint 16: length of the head. Clients write it, scripts only copy it.
--   head    timeout           integer
--   head    retention         integer
--   head    retention_failed  integer
--   head    queue             text
--   head    priority          integer
--   head    tag_count         integer
--   head    key               text or nil: the unique key
--   head    schedule          text
--   head    created           uint 64: added by the script that stores the job
--   middle  state             integer: its index in core.jobs.states.STATES
--   middle  fence             uint 64
--   middle  attempt           uint 32
--   middle  started           uint 64
--   middle  revision          uint 32
--   middle  cancelling        integer: 0 or 1
--   middle  due               uint 64
--   end     replica           text
--   end     finished          integer
--   end     reason            text
--   end     failures          integer
--   end     losses            integer
--   end     settled_fence     integer: the fence of the last settlement, and its mark
--   end     settled_as        text
--   end     progress          number or nil
--   end     message           text
--   end     checkpoint        bin 32 or nil
--   end     result            bin 32 or nil
--   end     error             bin 32 or nil
--   end     history           bin 32 or nil
--   fixed   task              text
--   fixed   tags              array of text
--   fixed   unique            nil or array: digest, keep, whether the key stays with the job
--   fixed   id                text
--   fixed   options           text
--   fixed   payload           bytes
--
-- The middle has a fixed size, because struct takes a third of the time of cmsgpack. Only clients decode
-- bin 32, which cmsgpack does not support.
local MIDDLE_SIZE = 39

local function middle(state, fence, attempt, started, revision, cancelling, due)
  return struct.pack('>BBI8BI4BI8BI4BBI8', state, 0xcf, fence, 0xce, attempt, 0xcf, started,
    0xce, revision, cancelling, 0xcf, due)
end

local function bin(bytes)
  return bytes and '\198' .. struct.pack('>I4', #bytes) .. bytes or '\192'
end

local function read_bin(record, offset)
  if string.byte(record, offset + 1) == 0xc0 then
    return offset + 1, nil
  end
  local length = struct.unpack('>I4', record, offset + 2)
  return offset + 5 + length, sub(record, offset + 6, offset + 5 + length)
end

-- Return the record of a new job: its head, its middle, and an empty end.
local function new_record(head, middle_part, replica)
  return head .. struct.pack('>BI8', 0xcf, now) .. middle_part
    .. pack(replica, 0, '', 0, 0, 0, '', nil, '') .. bin() .. bin() .. bin() .. bin()
end

-- Raises an error if two values cannot be compared, which costs less than checking their types. Fractions
-- are harmless, except in the numbers of a place in a queue.
local function is_within(record, size, timeout, retention, retention_failed, queue, priority,
    tag_count, key, schedule, created, state, fence, attempt, started, revision, cancelling, due,
    replica)
  return size >= 1 and size <= #record and timeout >= -1 and timeout <= SPAN_MAX
    and retention >= 0 and retention <= SPAN_MAX
    and retention_failed >= 0 and retention_failed <= SPAN_MAX and type(queue) == 'string'
    and priority >= 0 and priority <= 9 and priority % 1 == 0
    and tag_count >= 0 and tag_count <= 1000
    and (key == nil or type(key) == 'string') and type(schedule) == 'string'
    and created >= -INSTANT_MAX and created <= INSTANT_MAX
    and (state == 0 or state == 1 or state == 2 or state == 3 or state == 4)
    and fence >= 0 and fence <= INSTANT_MAX and attempt >= 0 and attempt <= COUNTER_MAX
    and started >= 0 and started <= INSTANT_MAX and revision >= 0 and revision <= COUNTER_MAX
    and (cancelling == 0 or cancelling == 1)
    and due >= 0 and due <= INSTANT_MAX and due % 1 == 0 and type(replica) == 'string'
end

-- Whether the values of a record down to its replica are sound, in their order. They are not put into a
-- table here or in a claim, which would take a third of the time of a job.
local function is_sound(...)
  local comparable, within = pcall(is_within, ...)
  return comparable and within
end

-- Return the job in a record. Raises an error if it is damaged.
local function read(id, record)
  local rest, size, timeout, retention, retention_failed, queue, priority, tag_count, key, schedule,
    created, state, fence, attempt, started, revision, cancelling, due, replica =
    decode_some(record, 18)
  assert(is_sound(record, size, timeout, retention, retention_failed, queue, priority, tag_count,
    key, schedule, created, state, fence, attempt, started, revision, cancelling, due, replica))
  local job = {
    id = id, head = sub(record, 1, size), timeout = timeout, retention = retention,
    retention_failed = retention_failed, queue = queue, priority = priority,
    tag_count = tag_count, key = key, schedule = schedule, state = state, fence = fence,
    attempt = attempt, started = started, revision = revision, cancelling = cancelling,
    due = due, replica = replica,
  }
  local offset
  offset, job.finished, job.reason, job.failures, job.losses, job.settled_fence, job.settled_as,
    job.progress, job.message = decode_some(record, 8, rest)
  assert(is_whole(job.finished, 0, INSTANT_MAX) and type(job.reason) == 'string'
    and is_whole(job.failures, 0, COUNTER_MAX) and is_whole(job.losses, 0, COUNTER_MAX)
    and is_whole(job.settled_fence, 0, INSTANT_MAX) and type(job.settled_as) == 'string'
    and (job.progress == nil or type(job.progress) == 'number') and type(job.message) == 'string')
  offset, job.checkpoint = read_bin(record, offset)
  offset, job.result = read_bin(record, offset)
  offset, job.error = read_bin(record, offset)
  offset, job.history = read_bin(record, offset)
  return job
end

-- Return the record of a job without its last four values: checkpoint, result, error, history.
local function beginning_of(job)
  return job.head
    .. middle(job.state, job.fence, job.attempt, job.started, job.revision, job.cancelling, job.due)
    .. pack(job.replica, job.finished, job.reason, job.failures, job.losses, job.settled_fence,
      job.settled_as, job.progress, job.message)
end

