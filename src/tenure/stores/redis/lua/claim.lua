-- Give a replica due jobs.
--
-- ARGV: now, bells, replica, claim_no, limit, queues
-- Returns {} if the replica's record is gone or dead, else
--   {time until the next job is due or -1, ids that were set aside and places that were none,
--    record, fixed, record, fixed...}.

local replica, claim_no, limit = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local one = replica_of(replica)
if not one or one.dead then
  return {}
end

-- The reply to the last claim was lost: return its jobs that still run.
local function repeated()
  local answers = {-1, {}}
  for id in string.gmatch(call('HGET', CLAIMS, replica) or '', '[^%z]+') do
    local job = job_of(id)
    if job and job.state == RUNS and job.replica == replica then
      answers[#answers + 1] = call('HGET', STATE, id)
      answers[#answers + 1] = call('HGET', FIXED, id)
    end
  end
  return answers
end
if claim_no <= one.claim_no then
  return claim_no == one.claim_no and repeated() or {-1, {}}
end
clamp(one)
if one.renewed + one.ttl <= now then
  return {-1, {}}
end

local members, ids, later = {}, {}, math.huge  -- places and ids of jobs to take; the next due time
local junk = {}  -- damaged members, and ids of unreadable jobs
local this_ms = floor(now / 1000)
local this_text, next_text = format('%016d', this_ms), format('%016d', this_ms + 1)
local this_rest = now % 1000

-- Return up to `most` places of a queue, and remove damaged members.
local function places_in(queue, from, till, most)
  for _ = 1, 5 do
    local found, broken = call('ZRANGEBYLEX', WAITING, from, till, 'LIMIT', 0, most), {}
    for _, member in ipairs(found) do
      local marked = sub(member, #queue + 2, #queue + 2) == LATER
      if not is_place(member, #queue + (marked and 4 or 3)) then
        broken[#broken + 1] = member
        junk[#junk + 1] = member
      end
    end
    if #broken == 0 then
      return found
    end
    call('ZREM', WAITING, unpack(broken))
  end
  return {}  -- there are very many; the next claim goes on
end

-- Add to `due` the due places of a range of one queue and priority. Within the current millisecond
-- the order is by id, so some may be due and some not.
local function add_due(due, found, at)
  local mixed = sub(found[#found], at, at + 15) == this_text
  for i = 1, #found do
    local member = found[i]
    local rest = mixed and sub(member, at, at + 15) == this_text and tonumber(sub(member, -3))
    if rest and rest > this_rest then
      later = min(later, this_ms * 1000 + rest)
    else
      due[#due + 1] = member
    end
  end
end

-- Return the places of up to `most` delayed jobs of a queue that are due, in the order in which they
-- are served. It needs three commands per priority in use, however many are due later. The bound is
-- only for thousands of jobs of the current millisecond.
local function waited_long_enough(queue, most)
  local at = #queue + 4  -- of the due time; the mark and the priority stand before it
  local prefix = queue .. '\0' .. LATER
  local from, till, due = '[' .. prefix, '(' .. queue .. '\0' .. '0', {}
  for _ = 1, 40 do
    local first = #due < most and places_in(queue, from, till, 1)[1]
    if not first then
      break
    end
    local time = sub(first, at, at + 15)
    if time > this_text then
      later = min(later, tonumber(time) * 1000 + tonumber(sub(first, -3)))
      from = '[' .. prefix .. string.char(string.byte(first, at - 1) + 1)
    else
      local found = places_in(queue, '[' .. first, '(' .. sub(first, 1, at - 1) .. next_text,
        most - #due)
      if #found == 0 then
        break  -- the order of the index is lost, see `level`
      end
      add_due(due, found, at)
      from = '(' .. found[#found]
    end
  end
  return due
end

-- Move due jobs among those of their queue without a delay.
local function end_pauses(queue, due)
  local places, ids = {}, {}
  for n, member in ipairs(due) do
    places[2 * n - 1], places[2 * n] = '0', queue .. '\0' .. sub(member, #queue + 3)
    ids[n] = sub(member, #queue + 20, -5)
  end
  call('ZREM', WAITING, unpack(due))
  call('ZREM', PAUSES, unpack(ids))
  call('ZADD', WAITING, unpack(places))
end

-- One command if the queue has no delayed job.
local function look_through(queue)
  local room = limit - #members
  local from, till = '[' .. queue .. '\0', '(' .. queue .. '\1'
  local found = room > 0 and places_in(queue, from, till, room) or {}
  if found[1] and sub(found[1], #queue + 2, #queue + 2) == LATER then
    local due = waited_long_enough(queue, room)
    if #due > 0 then
      end_pauses(queue, due)
    end
    found = places_in(queue, from .. '0', till, room)
  end
  for _, member in ipairs(found) do
    members[#members + 1], ids[#ids + 1] = member, sub(member, #queue + 19, -5)
  end
end

local function paused(queue)
  local till = tonumber(string.match(call('HGET', PAUSED, queue) or '', '^%S+'))
  if till and till <= now then
    call('HDEL', PAUSED, queue)
  end
  return till and till > now  -- a damaged end counts as no pause; `tenure queues` reports it
end
for n = 6, #ARGV do
  if not paused(ARGV[n]) then
    look_through(ARGV[n])
  end
end

one.claim_no = claim_no
local next_in = #members < limit and later < math.huge and later - now or -1
if #junk > 0 or (#members < limit and level(WAITING)) then
  next_in = 0  -- there may be more due jobs
end
if #members == 0 then
  write_replica(one)
  call('HDEL', CLAIMS, replica)
  return {next_in, junk}
end

local records, fixed = call('HMGET', STATE, unpack(ids)), call('HMGET', FIXED, unpack(ids))
local answers, packed_replica, holder, broken = {next_in, junk}, pack(replica), replica .. '\0', {}
local states, held, got = words_for('HSET', STATE), words_for('ZADD', HELD), 0
for n, id in ipairs(ids) do
  local record = records[n]
  local readable, rest, size, timeout, retention, retention_failed, queue, priority, tag_count, key,
    schedule, created, state, fence, attempt, started, revision, cancelling, due, runner =
    pcall(decode_some, record or '', 18)
  if readable and fixed[n] and state == WAITS and runner == ''
    and is_sound(record, size, timeout, retention, retention_failed, queue, priority, tag_count,
      key, schedule, created, state, fence, attempt, started, revision, cancelling, due, runner) then
    local taken = sub(record, 1, size)
      .. middle(RUNS, max(fence + 1, now), attempt + 1, now, revision + 1, 0, due)
      .. packed_replica .. sub(record, rest + 1)
    got = got + 1
    changed[got] = id
    local odd = 2 * got + 1  -- in answers and commands, after their first two words
    states[odd], states[odd + 1] = id, taken
    held[odd], held[odd + 1] = '0', holder .. id .. '\0' .. queue
    answers[odd], answers[odd + 1] = taken, fixed[n]
    if timeout >= 0 then
      gather('ZADD', DEADLINES, now + timeout, id)
    end
    count_running(queue, 1)
  else
    broken[#broken + 1] = n
  end
end

call('ZREM', WAITING, unpack(members))
local list = table.concat(changed, '\0')
for _, n in ipairs(broken) do
  set_aside(ids[n], records[n])
  junk[#junk + 1] = ids[n]
  answers[1] = 0  -- there may be more due jobs behind them
end
write_replica(one)
if list == '' then
  call('HDEL', CLAIMS, replica)
else
  call('HSET', CLAIMS, replica, list)
end
flush()
ring()
return answers
