-- Move the cursor of a schedule, and make its run.
--
-- ARGV: now, bells, id, name, revision, cursor as it was seen or '', tick, due, replica or '', rest,
--       1 if forced, head of the run's record or '' without a run, what is fixed of it,
--       for the limits of all runs and of those on the replica: number or '', reason, what if full,
--       for each tick that was passed: outcome, reason, first, last, ticks, run, replica
-- Returns {outcome, cursor, revision, last run, now, reason, time until it may be tried again},
--   then record and fixed of the run, if there is one.

local MOST = 1000  -- so many runs at most are cancelled at once

local id, name, replica, head, fixed = ARGV[3], ARGV[4], ARGV[9], ARGV[12], ARGV[13]
local revision, seen, tick, due = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]),
  tonumber(ARGV[8])
local rest, forced, has_run = tonumber(ARGV[10]), ARGV[11] == '1', head ~= ''
local one = schedule_of(name)

local function answer(outcome, reason, ready_in, record)
  local now_at = one or {cursor = 0, revision = 0, last_run = 0}
  local reply = {outcome, now_at.cursor, now_at.revision, now_at.last_run, now, reason or '',
    ready_in or 0}
  if record then
    reply[8], reply[9] = record, fixed
  end
  return reply
end

-- Return the answer to this very move, if it was made before.
local function repeated()
  local record = has_run and call('HGET', STATE, id)
  if record then
    fixed = call('HGET', FIXED, id)
    return answer(DONE, '', 0, record)
  elseif one and one.move == id then
    return answer(one.outcome, one.reason)
  end
end

local function nowhere()
  if replica == '' then
    return nil
  end
  local place = replica_of(replica)
  if not place or place.dead then
    return answer(GONE)
  end
  clamp(place)
  return place.renewed + place.ttl <= now and answer(NOT_NOW, 'expired') or nil
end

local function resting()
  local last = rest > 0 and one.last_job ~= '' and job_of(one.last_job)
  if not last then
    return nil
  elseif last.state <= RUNS then
    return answer(NOT_NOW, 'running')
  end
  local ready_in = last.finished + rest - now
  return ready_in > 0 and answer(EARLY, '', ready_in) or nil
end

local function has_passed()
  return seen and (seen ~= one.cursor or tick < seen)
end

-- Return why nothing changes, if so.
local function refused()
  if not one then
    return answer(UNKNOWN)
  elseif one.revision ~= revision or one.successor ~= '' or has_passed() then
    return answer(PASSED)
  elseif due > now then
    return answer(EARLY, '', due - now)
  end
  return has_run and (nowhere() or resting()) or nil
end

local newest, remembered = nil, {}

-- Return a decision; nothing if it cannot be read, so that the next one is not joined to it.
local function read_decision(record)
  local decision, readable = {}, nil
  readable, decision.outcome, decision.reason, decision.first, decision.last, decision.ticks,
    decision.at, decision.job, decision.replica = pcall(decode, record or '')
  return readable and is_whole(decision.outcome, RAN, 2) and is_instant(decision.first)
    and is_whole(decision.ticks, 0, INSTANT_MAX) and type(decision.job) == 'string'
    and type(decision.replica) == 'string' and decision or nil
end

local function packed(decision)
  return pack(decision.outcome, decision.reason, decision.first, decision.last, decision.ticks,
    decision.at, decision.job, decision.replica)
end

local function remember(decision)
  decision.at = now
  newest = newest or (one.decided > 0 and read_decision(
    call('HGET', DECISIONS, place_of_decision(name, one.decided))))
  if newest and newest.outcome ~= RAN and newest.outcome == decision.outcome
    and newest.reason == decision.reason then
    newest.last, newest.at, newest.ticks = decision.last, now, newest.ticks + decision.ticks
  else
    one.decided, newest = one.decided + 1, decision
  end
  remembered[place_of_decision(name, one.decided)] = packed(newest)
end

local function finish_move(decision, reason, record)
  for at = 20, #ARGV, 7 do
    remember({outcome = tonumber(ARGV[at]), reason = ARGV[at + 1], first = tonumber(ARGV[at + 2]),
      last = tonumber(ARGV[at + 3]), ticks = tonumber(ARGV[at + 4]), job = ARGV[at + 5],
      replica = ARGV[at + 6]})
  end
  if decision then
    remember(decision)
  end
  if seen then
    one.cursor = tick
  end
  one.move, one.outcome, one.reason = id, reason ~= '' and SKIPPED or DONE, reason
  write_schedule(one)
  if not forced then
    declare(name)
  end
  for place, text in pairs(remembered) do
    gather('HSET', DECISIONS, place, text)
  end
  flush()
  ring()
  return answer(one.outcome, reason, 0, record)
end

local function skip(reason)
  return finish_move({outcome = LEFT_OUT, reason = reason, first = tick, last = tick, ticks = 1,
    job = '', replica = ''}, reason)
end

local function is_frozen(by)
  local freeze = freeze_of(by)
  return freeze and (not freeze.till or tick < freeze.till)
end

-- Return the runs that fill a limit, if they do: all, those that nobody runs, those on the replica.
local function all_of(most)
  if count_live(name) >= most then
    local runs = live_runs(name, max(most, MOST))
    return #runs >= most and runs
  end
end

local function those_waiting(most)
  local runs = {}
  for _, run in ipairs(live_runs(name, math.huge)) do
    local job = job_of(run)
    if job and job.state == WAITS then
      runs[#runs + 1] = run
    end
  end
  return #runs >= most and runs
end

local function those_here(most)
  if replica == '' then
    return those_waiting(most)
  end
  local from, till, runs = '[' .. replica .. '\0', '(' .. replica .. '\1', {}
  repeat
    local held, places = call('ZRANGEBYLEX', HELD, from, till, 'LIMIT', 0, SLICE), {}
    for n, member in ipairs(held) do
      places[n] = name .. sub(member, #replica + 1)
    end
    for n, score in ipairs(#held > 0 and call('ZMSCORE', LIVE, unpack(places)) or {}) do
      if score then
        runs[#runs + 1] = string.match(held[n], '^[^%z]*', #replica + 2)
      end
    end
    from = #held > 0 and '(' .. held[#held]
  until #held < SLICE
  return #runs >= most and runs
end

-- Return what a limit makes of the tick, if it is full.
local function full(at, runs_within)
  local most, reason, what = tonumber(ARGV[at]), ARGV[at + 1], ARGV[at + 2]
  local runs = most and runs_within(most)
  if not runs then
    return nil
  elseif what == 'skip' then
    return skip(reason)
  elseif what == 'cancel' then
    for _, run in ipairs(runs) do
      local job = job_of(run)
      if job then
        cancel(job, reason)
      end
    end
    flush()
    ring()
    ring_holders()
  end
  return answer(NOT_NOW, reason)
end

-- Return why there is no run, if so.
local function skipped()
  if not forced and (is_frozen(name) or is_frozen(EVERYTHING)) then
    return skip('paused')
  end
  return full(14, all_of) or full(17, those_here)
end

-- Store the run: running on the replica, or waiting. Returns its record.
local function be_born()
  local _, _, timeout, _, _, queue, priority, _, key = decode_some(head, 8)
  local _, _, tags = decode_some(fixed, 2)
  local runs = replica ~= ''
  if runs then
    one.last_fence = max(one.last_fence + 1, now)  -- also if the clock was set back
  end
  local record = head .. struct.pack('>BI8', 0xcf, now)
    .. (runs and middle(RUNS, one.last_fence, 1, now, 2, 0, max(0, due))
      or middle(WAITS, 0, 0, 0, 1, 0, now))
    .. pack(replica) .. BLANK_END
  gather('HSET', FIXED, id, fixed)
  gather('HSET', STATE, id, record)
  gather('ZADD', UNFINISHED, '0', id)
  gather('ZADD', LIVE, '0', place_of_run(key, id, queue))
  for _, tag in ipairs(tags) do
    gather('ZADD', TAGS, '0', tag .. '\0' .. id)
  end
  if runs then
    gather('ZADD', HELD, '0', replica .. '\0' .. id .. '\0' .. queue)
    if timeout >= 0 then
      gather('ZADD', DEADLINES, now + timeout, id)
    end
    count_running(queue, 1)
    changed[1] = id
  else
    gather('ZADD', WAITING, '0', place(queue, priority, now, id))
    awaited[queue] = true
  end
  return record
end

local function move()
  if not has_run then
    return finish_move(nil, '')
  end
  local record = be_born()
  one.last_run, one.last_job = tick, id
  return finish_move({outcome = RAN, reason = forced and 'triggered' or '', first = tick,
    last = tick, ticks = 1, job = id, replica = replica}, '', record)
end

return repeated() or refused() or (has_run and skipped()) or move()
