-- Declare schedules.
--
-- ARGV: now, bells, for each: name, digest, definition, number of its former names, those
-- Returns now, then for each {revision, or 0 if another definition rules; cursor, last run}.

local function is_declared(name)
  local at = declared_at(name)
  if at > now then  -- the clock was set back
    declare(name)
    at = now
  end
  return at + DECLARED_FOR > now
end

local function take_over(made, former)
  for _, name in ipairs(former) do
    local before = schedule_of(name)
    if before then
      made.cursor, made.last_run = before.cursor, before.last_run
      before.successor, before.revision = made.name, before.revision + 1
      write_schedule(before)
      local freeze = freeze_of(name)
      if freeze then
        write_freeze(made.name, freeze.since, freeze.till, freeze.reason)
      end
      return
    end
  end
end

local function make(name, digest, text, former)
  local one = {name = name, revision = 1, cursor = now, last_run = 0, last_job = '',
    successor = '', move = '', outcome = DONE, reason = '', decided = 0}
  write_definition(name, {planted = now, digests = {digest}, text = text})
  call('ZADD', NAMES, '0', name)
  take_over(one, former)
  write_schedule(one)
  return one
end

-- Let a schedule that was renamed go on under its old name, if nobody uses the new one.
local function take_back(one)
  local heir = schedule_of(one.successor)
  if heir and is_declared(heir.name) then
    return false
  elseif heir then
    one.cursor, one.last_run = max(one.cursor, heir.cursor), max(one.last_run, heir.last_run)
  end
  one.successor = ''
  write_schedule(one)
  return true
end

-- Let a definition rule, unless it is an older one of a rolling deploy.
local function redefine(one, definition, digest, text)
  local digests, is_known = {}, false
  for _, other in ipairs(definition.digests) do
    if other == digest then
      is_known = true
    else
      digests[#digests + 1] = other
    end
  end
  if is_known and is_declared(one.name) then
    return false
  end
  digests[#digests + 1] = digest
  definition.digests = {unpack(digests, max(1, #digests - DIGESTS_MAX + 1))}
  definition.text = text
  write_definition(one.name, definition)
  one.revision, one.cursor = one.revision + 1, max(one.cursor, now)
  write_schedule(one)
  return true
end

-- Say whether a definition of a schedule that is there rules from now on.
local function rules(one, digest, text)
  if one.successor ~= '' and not take_back(one) then
    return false
  end
  local definition = definition_of(one.name)
  return definition.digests[#definition.digests] == digest
    or redefine(one, definition, digest, text)
end

local function plant(name, digest, text, former)
  local one = schedule_of(name)
  if one and not rules(one, digest, text) then
    return {0, one.cursor, one.last_run}
  end
  one = one or make(name, digest, text, former)
  declare(name)
  return {one.revision, one.cursor, one.last_run}
end

local answers, at = {now}, 3
while at <= #ARGV do
  local last = at + 3 + tonumber(ARGV[at + 3])
  answers[#answers + 1] = plant(ARGV[at], ARGV[at + 1], ARGV[at + 2], {unpack(ARGV, at + 4, last)})
  at = last + 1
end
return answers
