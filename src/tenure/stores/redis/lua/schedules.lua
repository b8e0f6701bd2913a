-- Prelude of every schedule script, after jobs.lua: the keys of schedules. They follow those of the
-- jobs, in this order:

local SCHEDULES   = KEYS[26]  -- hash name -> record, see `read_schedule`
local DEFINITIONS = KEYS[27]  -- hash name -> definition
local NAMES       = KEYS[28]  -- zset of names
local DECLARED    = KEYS[29]  -- zset name -> when a replica with its ruler has last declared it
local DECISIONS   = KEYS[30]  -- hash name NUL place -> line: like, first, last, ticks, at, body

-- Definitions and lines have their own keys, so that a tick writes few bytes. Scripts return tables of
-- core.schedules.records, packed, after now and the names of unreadable records:
local broken_schedules, broken_lines = {}, {}

local function read_schedule(name, record)
  local one = {name = name}
  one.version, one.standing, one.ruler, one.last_run, one.last_job, one.last_fence, one.lines =
    decode(record)
  assert(is_text(name) and is_text(one.version) and is_text(one.standing) and is_text(one.ruler)
    and is_instant(one.last_run) and is_text(one.last_job)
    and is_whole(one.last_fence, 0, LATEST) and is_whole(one.lines, 0, COUNTER_MAX))
  return one
end

-- Return schedules by name. Unreadable ones count as missing.
local function schedules_of(names)
  local known = {}
  for n, record in ipairs(#names > 0 and call('HMGET', SCHEDULES, unpack(names)) or {}) do
    local readable, one = pcall(read_schedule, names[n], record or '')
    if readable then
      known[names[n]] = one
    elseif record or not is_text(names[n]) then
      broken_schedules[#broken_schedules + 1] = names[n]
    end
  end
  return known
end

local function declared_at(name)
  return floor(max(-LATEST, min(LATEST, tonumber(call('ZSCORE', DECLARED, name) or 0))))
end

-- Lines are numbered from 1. The place of the oldest is reused when there are too many.
local function place_of_line(name, number)
  return name .. '\0' .. number % DECISIONS_MAX
end

local function line_of(one, number)
  local line, readable = {}, nil
  readable, line.like, line.first, line.last, line.ticks, line.at, line.body =
    pcall(decode, call('HGET', DECISIONS, place_of_line(one.name, number)) or '')
  if readable and is_text(line.like) and is_instant(line.first) and is_instant(line.last)
    and is_whole(line.ticks, 0, LATEST) and is_instant(line.at) and is_text(line.body) then
    return line
  end
  broken_lines[#broken_lines + 1] = one.name
end

