-- Declare schedules.
--
-- ARGV: now, bells, for each: name, digest, calendar, definition, number of its former names, those
-- Returns now, then for each {revision, or 0 if it has to yield; cursor, last run}.

-- So many renames in a row are followed. Names never make a circle, but a record that somebody has
-- spoiled might, and nobody else is served while we run.
local RENAMES_MAX = 100

local function contains(list, wanted)
  for _, value in ipairs(list) do
    if value == wanted then
      return true
    end
  end
  return false
end

local function is_declared(name)
  local at = declared_at(name)
  if at > now then  -- the clock was set back
    declare(name)
    at = now
  end
  return at + DECLARED_FOR > now
end

-- Begin a schedule. Its cursor is open until it is known whom it takes over from.
local function make(planting)
  write_definition(planting.name, {planted = now, digests = {planting.digest},
    calendar = planting.calendar, text = planting.text})
  call('ZADD', NAMES, '0', planting.name)
  return {name = planting.name, revision = 1, cursor = 0, last_run = 0, last_job = '',
    last_fence = 0, successor = '', move = '', outcome = DONE, reason = '', decided = 0}
end

-- Return the schedule that this one was renamed to in the end; itself if it was not.
local function heir_of(one)
  for _ = 1, RENAMES_MAX do
    local following = one.successor ~= '' and schedule_of(one.successor)
    if not following then
      break
    end
    one = following
  end
  return one
end

local function redefine(one, definition, planting)
  local digests = {}
  for _, digest in ipairs(definition.digests) do
    if digest ~= planting.digest then
      digests[#digests + 1] = digest
    end
  end
  digests[#digests + 1] = planting.digest
  definition.digests = {unpack(digests, max(1, #digests - DIGESTS_MAX + 1))}
  definition.text = planting.text
  one.revision = one.revision + 1
  if definition.calendar ~= planting.calendar then
    definition.calendar, one.cursor = planting.calendar, max(one.cursor, now)
  end
  write_definition(one.name, definition)
end

-- Let a definition rule, unless it is an older one of a rolling deploy. Returns whether it does.
local function rules(one, planting)
  local definition = definition_of(one.name)
  if definition.digests[#definition.digests] == planting.digest then
    return true
  elseif contains(definition.digests, planting.digest) and is_declared(one.name) then
    return false
  end
  redefine(one, definition, planting)
  return true
end

-- The freeze of a name that was taken over before is a thing of the past.
local function carry_freeze(one, other)
  local freeze = other.successor == '' and not freeze_of(one.name) and freeze_of(other.name)
  if freeze then
    write_freeze(one.name, freeze.since, freeze.till, freeze.reason)
  end
end

-- Go on where another one was, which rests from now on.
local function take_over(one, other)
  local is_same = definition_of(one.name).calendar == definition_of(other.name).calendar
  one.cursor = max(one.cursor, other.cursor, is_same and other.cursor or now)
  one.last_run = max(one.last_run, other.last_run)
  one.last_fence = max(one.last_fence, other.last_fence)
  carry_freeze(one, other)
  other.successor, other.revision = one.name, other.revision + 1
  write_schedule(other)
end

-- Take over from those of these names that are there, and were not taken over by this one before.
local function take_over_all(one, names)
  if one.successor ~= '' then
    call('HDEL', FREEZES, one.name)
    one.successor = ''
  end
  for _, name in ipairs(names) do
    local other = name ~= one.name and schedule_of(name)
    if other and other.successor ~= one.name then
      take_over(one, other)
    end
  end
end

local function plant(planting)
  local one = schedule_of(planting.name) or make(planting)
  local heir = heir_of(one)
  local yields = heir.name ~= one.name and not contains(planting.former, heir.name)
    and is_declared(heir.name)
  if yields or not rules(one, planting) then
    return {0, one.cursor, one.last_run}
  end
  take_over_all(one, {heir.name, unpack(planting.former)})
  if one.cursor == 0 then
    one.cursor = now
  end
  write_schedule(one)
  declare(one.name)
  return {one.revision, one.cursor, one.last_run}
end

local answers, at = {now}, 3
while at <= #ARGV do
  local last = at + 4 + tonumber(ARGV[at + 4])
  answers[#answers + 1] = plant({name = ARGV[at], digest = ARGV[at + 1], calendar = ARGV[at + 2],
    text = ARGV[at + 3], former = {unpack(ARGV, at + 5, last)}})
  at = last + 1
end
return answers
