-- Declare schedules.
--
-- ARGV: now, bells, for each: name, digest, calendar, definition, number of its former names, those
-- Returns now, then for each {revision, or 0 if it has to yield; cursor, last run, 1 if it begins anew
--   because it could not be read}.

-- So many renames in a row are followed. Names never make a circle, but a record that somebody has
-- spoiled might, and nobody else is served while we run.
local RENAMES_MAX = 100

-- The schedules that were looked at, by name; false if there is none. Nobody has an empty name.
local known = {[''] = false}

local function find(name)
  if known[name] == nil then
    known[name] = schedule_of(name) or false
  end
  return known[name]
end

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

-- Begin a schedule. Its cursor is 0 until it is known whom it takes over from.
local function make(planting)
  write_definition(planting.name, {planted = now, digests = {planting.digest},
    calendar = planting.calendar, text = planting.text})
  call('ZADD', NAMES, '0', planting.name)
  known[planting.name] = {name = planting.name, revision = 1, cursor = 0, last_run = 0,
    last_job = '', last_fence = 0, successor = '', move = '', outcome = DONE, reason = '',
    decided = 0}
  return known[planting.name]
end

-- Return the schedule that this one was renamed to in the end; itself if it was not.
local function heir_of(one)
  for _ = 1, RENAMES_MAX do
    local following = find(one.successor)
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
  definition.text, definition.calendar = planting.text, planting.calendar
  one.revision = one.revision + 1
  write_definition(one.name, definition)
end

-- Let a definition rule, unless it is an older one of a rolling deploy. Returns the calendar from
-- now on, and the one before; nil if the definition does not rule.
local function rule(one, planting)
  local definition = definition_of(one.name)
  local before = definition.calendar
  if definition.digests[#definition.digests] ~= planting.digest then
    if contains(definition.digests, planting.digest) and is_declared(one.name) then
      return nil
    end
    redefine(one, definition, planting)
  end
  return definition.calendar, before
end

-- Return those that a schedule takes over from.
local function others_of(one, heir, former)
  local others, seen = {}, {[one] = true}
  local function add(other)
    if not seen[other] then
      others[#others + 1], seen[other] = other, true
    end
  end
  add(heir)
  for _, name in ipairs(former) do
    local other = find(name)
    local last = other and heir_of(other)
    -- What another one has taken over by now is that one's; only a new one follows it there.
    if last and (last == other or one.cursor == 0) then
      add(last)
    end
  end
  return others
end

local function lasts_longer(freeze, other)
  return not other or (other.till and (not freeze.till or freeze.till > other.till))
end

-- Leave a schedule with the freeze that lasts longest; that of a name at rest does not count.
local function take_freeze(one, others)
  if one.successor ~= '' then
    call('HDEL', FREEZES, one.name)
  end
  local own = #others > 0 and freeze_of(one.name)
  local longest = own
  for _, other in ipairs(others) do
    local freeze = freeze_of(other.name)
    if freeze and lasts_longer(freeze, longest) then
      longest = freeze
    end
  end
  if longest ~= own then
    write_freeze(one.name, longest.since, longest.till, longest.reason)
  end
end

-- Return where a schedule goes on that had the calendar `before`. That is now, unless somebody has
-- decided about the ticks of the same calendar until lately.
local function cursor_of(one, calendar, before, heir, others)
  local is_current = one.cursor ~= 0 and one.successor == ''
  local cursor, goes_on = one.cursor, is_current and calendar == before
  local latest = max(cursor, now)  -- the clock may have been set back
  for _, other in ipairs(others) do
    latest = max(latest, other.cursor)
    if definition_of(other.name).calendar == calendar then
      cursor, goes_on = max(cursor, other.cursor), true
    end
  end
  local is_forgotten = heir.successor ~= ''  -- whoever came after it is not there any more
  return goes_on and not is_forgotten and cursor or latest
end

-- Go on where another one was, which rests from now on.
local function take_over(one, other)
  if other.last_run > one.last_run then
    one.last_run, one.last_job = other.last_run, other.last_job
  end
  one.last_fence = max(one.last_fence, other.last_fence)
  other.successor, other.revision = one.name, other.revision + 1
  write_schedule(other)
end

local function plant(planting)
  local anew = not find(planting.name) and call('HEXISTS', SCHEDULES, planting.name) or 0
  local one = find(planting.name) or make(planting)
  local heir = heir_of(one)
  local yields = heir ~= one and not contains(planting.former, heir.name)
    and is_declared(heir.name)
  local calendar, before
  if not yields then
    calendar, before = rule(one, planting)
  end
  if not calendar then
    return {0, one.cursor, one.last_run, anew}
  end
  local others = others_of(one, heir, planting.former)
  take_freeze(one, others)
  one.cursor = cursor_of(one, calendar, before, heir, others)
  for _, other in ipairs(others) do
    take_over(one, other)
  end
  one.successor = ''
  write_schedule(one)
  declare(one.name)
  return {one.revision, one.cursor, one.last_run, anew}
end

local answers, at = {now}, 3
while at <= #ARGV do
  local last = at + 4 + tonumber(ARGV[at + 4])
  answers[#answers + 1] = plant({name = ARGV[at], digest = ARGV[at + 1], calendar = ARGV[at + 2],
    text = ARGV[at + 3], former = {unpack(ARGV, at + 5, last)}})
  at = last + 1
end
return answers
