-- Prelude of every schedule script, after jobs.lua: the runs of schedules, which are jobs.

local SLICE = 500  -- how many runs one command visits

-- Return an upper bound of a schedule's unfinished runs, without visiting each.
local function count_live(name)
  return call('ZLEXCOUNT', LIVE, '[' .. name .. '\0', '(' .. name .. '\1')
end

-- Return the ids of up to `most` unfinished runs of a schedule, in order. An entry without a job is
-- removed, if the server takes writes, so that it is not counted again.
local function live_runs(name, most)
  local from, till, live = '[' .. name .. '\0', '(' .. name .. '\1', {}
  while #live < most do
    local found, ids = call('ZRANGEBYLEX', LIVE, from, till, 'LIMIT', 0, min(SLICE, most - #live)), {}
    if #found == 0 then
      break
    end
    for n, member in ipairs(found) do
      ids[n] = string.match(member, '^[^%z]*', #name + 2)
    end
    for n, score in ipairs(call('ZMSCORE', UNFINISHED, unpack(ids))) do
      if score then
        live[#live + 1] = ids[n]
      else
        redis.pcall('ZREM', LIVE, found[n])
      end
    end
    from = '(' .. found[#found]
  end
  return live
end

-- Return the ids of the unfinished runs of a schedule that a replica runs, in order.
local function runs_on(replica, name)
  local from, till, runs = '[' .. replica .. '\0', '(' .. replica .. '\1', {}
  repeat
    local held, entries = call('ZRANGEBYLEX', HELD, from, till, 'LIMIT', 0, SLICE), {}
    for n, member in ipairs(held) do
      entries[n] = name .. sub(member, #replica + 1)
    end
    for n, score in ipairs(#held > 0 and call('ZMSCORE', LIVE, unpack(entries)) or {}) do
      if score then
        runs[#runs + 1] = string.match(held[n], '^[^%z]*', #replica + 2)
      end
    end
    from = '(' .. (held[#held] or '')
  until #held < SLICE
  return runs
end

-- Store a run: running on a replica under a fence, or waiting. Returns its record.
local function make_run(id, head, fixed, replica, fence, due)
  local _, _, timeout, _, _, queue, priority, _, _, schedule = decode_some(head, 9)
  local _, _, tags = decode_some(fixed, 2)
  local record = new_record(head, replica ~= '' and middle(RUNS, fence, 1, now, 2, 0, max(0, due))
    or middle(WAITS, 0, 0, 0, 1, 0, now), replica)
  gather('HSET', FIXED, id, fixed)
  gather('HSET', STATE, id, record)
  gather('ZADD', UNFINISHED, '0', id)
  gather('ZADD', LIVE, '0', place_of_run(schedule, id, queue))
  for _, tag in ipairs(tags) do
    gather('ZADD', TAGS, '0', tag .. '\0' .. id)
  end
  if replica == '' then
    gather('ZADD', WAITING, '0', place(queue, priority, now, id))
    awaited[queue] = true
    return record
  end
  gather('ZADD', HELD, '0', replica .. '\0' .. id .. '\0' .. queue)
  if timeout >= 0 then
    gather('ZADD', DEADLINES, now + timeout, id)
  end
  count_running(queue, 1)
  changed[#changed + 1] = id
  return record
end

