-- End attempts. No job is named twice.
--
-- ARGV: now, bells, replica, number of plain successes,
--       for each of them: id, fence, end
--       for each other settlement: id, fence, end, move, delay, reason
--       The end is that of the record: result, error, history; nil leaves the history as it is.
--       The move is `Settlement.move`: state, yields, failures, losses, mark.
-- Returns for each 0 if it is lost, 1 if it was settled, 2 if it was settled so before, 3 if it cannot be
-- read and was set aside, 4 if it was cancelled instead.

local replica_told, plain = ARGV[3], tonumber(ARGV[4])
local answers, slow = {}, {}
local SUCCESS = '2000s'

-- Write what every settlement changes; return the result and the error in its end.
local function note_end(job, fence, ending, move)
  job.settled_fence, job.settled_as = fence, sub(move, 5)
  job.failures, job.losses = job.failures + sub(move, 3, 3), job.losses + sub(move, 4, 4)
  local offset, result, failure, history
  offset, result = read_bin(ending, 0)
  offset, failure = read_bin(ending, offset)
  offset, history = read_bin(ending, offset)
  job.history, job.error = history or job.history, failure or job.error
  return result, failure
end

local function settle(id, fence, ending, move, delay, reason)
  local job, state = job_of(id), tonumber(sub(move, 1, 1))
  if drop_unreadable(replica_told, id) then
    return 3
  elseif job and job.settled_fence == fence and job.settled_as == sub(move, 5) then
    return 2
  elseif not job or job.state ~= RUNS or job.fence ~= fence then
    return 0
  end
  local result, failure = note_end(job, fence, ending, move)
  if job.cancelling == 1 and (state == WAITS or sub(move, 2, 2) == '1') then
    finish(job, CANCELLED)
    return 4
  elseif state == WAITS then
    wait(job, delay)  -- without a delay it keeps its place in the queue
    return 1
  end
  if state ~= CANCELLED then
    job.error = failure
  end
  if state == SUCCEEDED then
    job.reason = ''
  elseif reason ~= '' then
    job.reason = reason
  end
  job.result = result
  finish(job, state)
  return 1
end

-- A first attempt that succeeded, of a job without a unique key: the rule. Its record is put
-- together out of pieces, and the whole batch goes through each index in one command.
local function settle_plain()
  local ids = {}
  for n = 1, plain do
    ids[n] = ARGV[3 * n + 2]
  end
  local records = call('HMGET', STATE, unpack(ids))
  local states, held, out, into, ends, late, queues, till = {}, {}, {}, {}, {}, {}, {}, {}
  local i = 0
  for n = 1, plain do
    local record, at = records[n], 3 * n + 2
    local ok, offset, length, timeout, retention, retention_failed, queue, priority, tagged, key,
      created, state, fence, attempt, started, revision, cancelling, due, replica =
      pcall(decode_some, record or '', 17)
    if not ok or state ~= RUNS or key or cancelling ~= 0 or fence ~= tonumber(ARGV[at + 1])
      or not is_sound(record, length, timeout, retention, retention_failed, queue, priority, tagged,
        key, created, state, fence, attempt, started, revision, cancelling, due, replica)
      or sub(record, offset + 1) ~= BLANK_END then
      slow[#slow + 1] = n
    else
      local id = ids[n]
      local odd, even = 2 * i + 1, 2 * i + 2
      i = i + 1
      answers[n] = 1
      states[odd], states[even] = id, sub(record, 1, length)
        .. middle(SUCCEEDED, fence, attempt, started, revision + 1, 0, due)
        .. struct.pack('>BBI8BBBBI8', 0xa0, 0xcf, now, 0xa0, 0, 0, 0xcf, fence)
        .. '\161s' .. '\192\160\192' .. ARGV[at + 2]
      held[i] = replica .. '\0' .. id .. '\0' .. queue
      out[i] = id
      into[odd], into[even] = '0', id
      till[retention] = till[retention] or format('%.0f', now + retention)
      ends[odd], ends[even] = till[retention], member_of_finished(id, tagged)
      queues[queue] = (queues[queue] or 0) + 1
      changed[i] = id
      if timeout >= 0 then
        late[#late + 1] = id
      end
    end
  end
  if i == 0 then
    return
  end
  call('ZREM', HELD, unpack(held))
  call('ZREM', UNFINISHED, unpack(out))
  if #late > 0 then
    call('ZREM', DEADLINES, unpack(late))
  end
  call('HSET', STATE, unpack(states))
  call('ZADD', INDEX[SUCCEEDED], unpack(into))
  call('ZADD', FINISHED, unpack(ends))
  for queue, jobs in pairs(queues) do
    count_running(queue, -jobs)
  end
end

if plain > 0 then
  settle_plain()
end
for _, n in ipairs(slow) do
  local at = 3 * n + 2
  answers[n] = settle(ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2], SUCCESS, 0, '')
end
local n = plain
for at = 3 * plain + 5, #ARGV, 6 do
  n = n + 1
  answers[n] = settle(ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3],
    tonumber(ARGV[at + 4]), ARGV[at + 5])
end
flush()
ring()
return answers
