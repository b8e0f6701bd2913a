-- End attempts. No job is named twice.
--
-- ARGV: now, bells, for each: id, how it ends - fence, state, whether it yields to a cancel, failures and
--       losses to add, mark, delay, reason; then as in a record: result, error, history
-- Returns for each 0 if it is lost, 1 if it was settled, 2 if this is a repeat, 3 if it is unreadable and
-- was set aside, 4 if it became cancelled.

-- Return the end of an attempt; a nil history keeps the stored one.
local function read_end(words)
  local last, offset = {}, 0
  offset, last.fence, last.state, last.yields, last.failures, last.losses, last.mark, last.delay,
    last.reason = decode_some(words, 8)
  offset, last.result = read_bin(words, offset)
  offset, last.error = read_bin(words, offset)
  offset, last.history = read_bin(words, offset)
  return last
end

-- Write the changes of every settlement.
local function note_end(job, last)
  job.settled_fence, job.settled_as = last.fence, last.mark
  job.failures, job.losses = job.failures + last.failures, job.losses + last.losses
  job.history, job.error = last.history or job.history, last.error or job.error
end

local function settle(id, record, last)
  local job = keep_known(id, record)
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

-- The usual case: the first attempt of a job has succeeded, or was lost and waits again. The new record is
-- assembled from pieces without decoding each value, in a third of the time.
local SUCCESS = pack(SUCCEEDED, false, 0, 0, 's', 0, '')
local UNTOUCHED = sub(new_record('', '', ''), 11)  -- all values after the replica
local ended, marked = pack('', now, '', 0, 0), pack('s', nil, '') .. bin()
local held, unfinished = words_for('ZREM', HELD), words_for('ZREM', UNFINISHED)
local states, index, finished = words_for('HSET', STATE), words_for('ZADD', INDEX[SUCCEEDED]),
  words_for('ZADD', FINISHED)
local plain, successes, ends = 0, 0, {}  -- how many; ends of retentions, as text

-- Settle a success; `tail` is the packed result. Returns the record from its replica on.
local function succeed_plain(id, fence, retention, tag_count, tail)
  successes = successes + 1
  unfinished[successes + 2] = id
  ends[retention] = ends[retention] or format('%.0f', now + retention)
  local odd = 2 * successes + 1  -- in commands, after their first two words
  index[odd], index[odd + 1] = '0', id
  finished[odd], finished[odd + 1] = ends[retention], tag_count > 0 and id .. '\0' or id
  return ended .. pack(fence) .. marked .. tail
end

-- Settle the end of a first attempt, if that is what it is. Returns whether it was.
local function settle_plain(id, record, words)
  local readable, rest, size, timeout, retention, retention_failed, queue, priority, tag_count, key,
    schedule, created, state, fence, attempt, started, revision, cancelling, due, replica =
    pcall(decode_some, record or '', 18)
  local offset, own_fence = decode_some(words, 1)
  if not readable or state ~= RUNS or fence ~= own_fence or cancelling ~= 0
    or not is_sound(record, size, timeout, retention, retention_failed, queue, priority, tag_count,
      key, schedule, created, state, fence, attempt, started, revision, cancelling, due, replica)
    or sub(record, rest + 1) ~= UNTOUCHED then
    return false
  end
  local to, last
  if sub(words, offset + 1, offset + #SUCCESS) == SUCCESS then
    if key or schedule ~= '' then
      return false
    end
    to = SUCCEEDED
    last = succeed_plain(id, fence, retention, tag_count, sub(words, offset + #SUCCESS + 1))
  else
    local failures, losses, mark, delay, _
    offset, to, _, failures, losses, mark, delay, _ = decode_some(words, 7, offset)
    if to ~= WAITS or byte(words, offset + 1) ~= 0xc0 then
      return false
    end
    -- It has neither a checkpoint nor a result.
    last = pack('', 0, '', failures, losses, fence, mark, nil, '') .. bin() .. sub(words, offset + 1)
    due = enter_queue(id, queue, priority, due, delay)
    fence = max(fence + 1, now)
  end
  plain = plain + 1
  changed[plain] = id
  held[plain + 2] = replica .. '\0' .. id .. '\0' .. queue
  if timeout >= 0 then
    gather('ZREM', DEADLINES, id)
  end
  states[2 * plain + 1] = id
  states[2 * plain + 2] = sub(record, 1, size)
    .. middle(to, fence, attempt, started, revision + 1, 0, due) .. last
  count_running(queue, -1)
  return true
end

local ids, answers = {}, {}
for at = 3, #ARGV, 2 do
  ids[#ids + 1] = ARGV[at]
end
local records = call('HMGET', STATE, unpack(ids))
for n, id in ipairs(ids) do
  answers[n] = settle_plain(id, records[n], ARGV[2 * n + 2]) and 1
end
for n, id in ipairs(ids) do
  answers[n] = answers[n] or settle(id, records[n], read_end(ARGV[2 * n + 2]))
end
flush()
ring()
return answers
