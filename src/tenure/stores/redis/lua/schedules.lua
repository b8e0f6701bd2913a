-- In front of every schedule script, after jobs.lua: what is stored about schedules. Their keys
-- follow those of the jobs, in this order:

local SCHEDULES   = KEYS[26]  -- hash name -> what moves with its cursor, see `schedule_of`
local DEFINITIONS = KEYS[27]  -- hash name -> when it was planted, digests, calendar, definition
local NAMES       = KEYS[28]  -- zset of names
local DECLARED    = KEYS[29]  -- zset name -> when somebody who declares it was last heard of
local DECISIONS   = KEYS[30]  -- hash name NUL place -> decision; the places are used in turn
local FREEZES     = KEYS[31]  -- hash name -> since, until or nil, reason

-- Definitions and decisions stand apart, so that a tick writes few bytes.

local DONE, SKIPPED, NOT_NOW, PASSED, EARLY, GONE, UNKNOWN = 0, 1, 2, 3, 4, 5, 6  -- moves
local RAN, LEFT_OUT = 0, 1                                                        -- decisions
local EVERYTHING = '*'
local SLICE = 500  -- of runs that are looked at by one command

local function read_schedule(name, record)
  local one = {name = name, stored = record}
  one.revision, one.cursor, one.last_run, one.last_job, one.last_fence, one.successor, one.move,
    one.outcome, one.reason, one.decided = decode(record)
  assert(is_whole(one.revision, 0, INSTANT_MAX) and is_instant(one.cursor)
    and is_instant(one.last_run) and type(one.last_job) == 'string'
    and is_whole(one.last_fence, 0, INSTANT_MAX) and type(one.successor) == 'string'
    and type(one.move) == 'string' and is_whole(one.outcome, DONE, UNKNOWN)
    and type(one.reason) == 'string' and is_whole(one.decided, 0, INSTANT_MAX))
  return one
end

-- Return a schedule; nil if there is none, or only something that cannot be read. Whoever plants it
-- then begins anew, with its cursor at now.
local function schedule_of(name)
  local readable, one = pcall(read_schedule, name, call('HGET', SCHEDULES, name) or '')
  return readable and one or nil
end

-- Write a schedule, if anything about it has changed.
local function write_schedule(one)
  local record = pack(one.revision, one.cursor, one.last_run, one.last_job, one.last_fence,
    one.successor, one.move, one.outcome, one.reason, one.decided)
  if record ~= one.stored then
    call('HSET', SCHEDULES, one.name, record)
    one.stored = record
  end
end

local function read_definition(record)
  local offset, planted, digests, calendar = decode_some(record, 3)
  assert(is_instant(planted) and type(digests) == 'table' and type(calendar) == 'string')
  for _, digest in pairs(digests) do
    assert(type(digest) == 'string')
  end
  return {planted = planted, digests = digests, calendar = calendar, text = sub(record, offset + 1)}
end

-- Return the definition of a schedule; an empty one if it cannot be read, so that the next one rules.
local function definition_of(name)
  local readable, one = pcall(read_definition, call('HGET', DEFINITIONS, name) or '')
  return readable and one or {planted = now, digests = {}, calendar = '', text = ''}
end

local function write_definition(name, one)
  call('HSET', DEFINITIONS, name, pack(one.planted, one.digests, one.calendar) .. one.text)
end

local function declared_at(name)
  return max(-INSTANT_MAX, min(INSTANT_MAX, tonumber(call('ZSCORE', DECLARED, name) or 0)))
end

local function declare(name)
  call('ZADD', DECLARED, now, name)
end

-- Decisions are numbered from 1; the place of the last one is used again when there are too many.
local function place_of_decision(name, number)
  return name .. '\0' .. number % DECISIONS_MAX
end

-- Return the places of the last decisions, newest first.
local function places_of_decisions(one, most)
  local places = {}
  for number = one.decided, max(1, one.decided - min(most, DECISIONS_MAX) + 1), -1 do
    places[#places + 1] = place_of_decision(one.name, number)
  end
  return places
end

-- Return a freeze; nil if there is none, or only something that cannot be read, which holds up nothing.
local function freeze_of(name)
  local readable, since, till, reason = pcall(decode, call('HGET', FREEZES, name) or '')
  if readable and is_instant(since) and (till == nil or is_instant(till))
    and type(reason) == 'string' then
    return {since = since, till = till, reason = reason}
  end
end

local function write_freeze(name, since, till, reason)
  call('HSET', FREEZES, name, pack(since, till, reason))
end

-- Return how many runs of a schedule are unfinished, without a look at each: at least so many.
local function count_live(name)
  return call('ZLEXCOUNT', LIVE, '[' .. name .. '\0', '(' .. name .. '\1')
end

-- Return the ids of up to `most` unfinished runs of a schedule, in order. Entries that nothing
-- stands behind any more go, so that they are never counted again.
local function live_runs(name, most)
  local from, till, live = '[' .. name .. '\0', '(' .. name .. '\1', {}
  while #live < most do
    local found = call('ZRANGEBYLEX', LIVE, from, till, 'LIMIT', 0, min(SLICE, most - #live))
    if #found == 0 then
      break
    end
    local ids, gone = {}, {}
    for n, member in ipairs(found) do
      ids[n] = string.match(member, '^[^%z]*', #name + 2)
    end
    for n, score in ipairs(call('ZMSCORE', UNFINISHED, unpack(ids))) do
      if score then
        live[#live + 1] = ids[n]
      else
        gone[#gone + 1] = found[n]
      end
    end
    if #gone > 0 then
      call('ZREM', LIVE, unpack(gone))
    end
    from = '(' .. found[#found]
  end
  return live
end

