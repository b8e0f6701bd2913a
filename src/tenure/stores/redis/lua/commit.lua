-- Carry out commits, one after the other.
--
-- ARGV: now, bells, for each: the commit, as lists; head and fixed part of its run, or '' twice
-- Returns for each {outcome, room, blocking, found}, packed, then the record and fixed part of its run.

local commit, head, fixed  -- the one at hand
local run, known, unsaved  -- record and fixed part; its schedules by name; those that have changed

local function forget_lines(name, lines)
  for number = 1, min(lines, DECISIONS_MAX) do
    gather('HDEL', DECISIONS, place_of_line(name, number))
  end
end

local function forget(name)
  forget_lines(name, known[name] and known[name].lines or DECISIONS_MAX)
  gather('HDEL', SCHEDULES, name)
  gather('HDEL', DEFINITIONS, name)
  gather('ZREM', NAMES, name)
  gather('ZREM', DECLARED, name)
  known[name] = nil
end

local function write_document(name, standing, ruler, definition, above)
  local one = known[name]
  if not one then
    one = {name = name, last_run = 0, last_job = '', last_fence = 0, lines = 0}
    for _, broken in ipairs(broken_schedules) do
      forget_lines(name, broken == name and DECISIONS_MAX or 0)  -- which its record cannot count
    end
    gather('ZADD', NAMES, '0', name)
    gather('ZADD', DECLARED, now, name)
  end
  if definition or not known[name] then
    gather('HSET', DEFINITIONS, name, definition or '')
  end
  one.version, one.standing, one.ruler = commit.id, standing, ruler
  for _, other_name in ipairs(above) do
    local other = known[other_name] or schedules_of({other_name})[other_name] or one
    if other.last_run > one.last_run then
      one.last_run, one.last_job = other.last_run, other.last_job
    end
    one.last_fence = max(one.last_fence, other.last_fence)
  end
  known[name], unsaved[name] = one, one
end

-- Add a line to the history, or extend the newest line if `like` is equal.
local function add_line(one, like, first, last, ticks, _, body)
  local newest = like ~= '' and one.lines > 0 and line_of(one, one.lines)
  if newest and newest.like == like then
    first, ticks, body = newest.first, newest.ticks + ticks, newest.body
  else
    one.lines = one.lines + 1
  end
  local place = place_of_line(one.name, one.lines)
  call('HSET', DECISIONS, place, pack(like, first, last, ticks, now, body))
end

-- Write all changes, with this as the newest line of the history.
local function carry_out(line, has_run)
  for _, write in ipairs(commit.writes) do
    (write[2] and write_document or forget)(unpack(write, 1, 5))  -- [2] is the standing
  end
  local own = known[commit.name] or {last_fence = 0}  -- if it was deleted just now
  if has_run then
    local fence = max(own.last_fence + 1, now)  -- also if the clock was set back
    run = {make_run(commit.id, head, fixed, commit.start_on, fence, commit.not_before), fixed}
    own.last_run, own.last_job = commit.tick, commit.id
    own.last_fence = commit.start_on ~= '' and fence or own.last_fence
  end
  if known[commit.name] then
    commit.lines[#commit.lines + 1] = line
    for _, each in ipairs(commit.lines) do
      add_line(own, unpack(each))
    end
    if commit.declares then
      gather('ZADD', DECLARED, now, own.name)
    end
    unsaved[own.name] = own
  end
  for name, one in pairs(unsaved) do
    gather('HSET', SCHEDULES, name, pack(one.version, one.standing, one.ruler, one.last_run,
      one.last_job, one.last_fence, one.lines))
  end
  flush()
  return {'done'}
end

-- The checks. Each returns the answer to the commit, or nothing to continue.

local function repeated()
  local record = head ~= '' and call('HGET', STATE, commit.id)
  run = record and {record, call('HGET', FIXED, commit.id) or ''} or {}
  return record and {'done'}
end

local function is_silent(name, seconds)
  local age = now - declared_at(name)
  if age < 0 then  -- the clock was set back
    call('ZADD', DECLARED, now, name)
  end
  return max(age, 0) >= floor(seconds * 1000000 + 0.5)
end

local function stale()
  local found = {}
  for _, expected in ipairs(commit.expects) do
    local name, version, silent_for = unpack(expected, 1, 3)
    local one = known[name] or {version = ''}
    local spoke = silent_for and known[name] and not is_silent(name, silent_for)
    if spoke or one.version ~= version then
      found[#found + 1] = {name, one.version, one.standing, one.ruler, one.last_run, one.last_job}
    end
  end
  return #found > 0 and {'stale', 0, {}, found}
end

local function homeless()
  local replica = replica_of(commit.start_on)
  if not replica or replica.dead then
    return {'gone'}
  end
  clamp(replica)
  return replica.renewed + replica.ttl <= now and {'expired'}
end

local function full()
  for number, room in ipairs(commit.rooms) do
    local most, on, instead = unpack(room, 1, 3)
    local runs = on ~= '' and runs_on(on, commit.name)
      or count_live(commit.name) >= most and live_runs(commit.name, max(most, BLOCKING_MAX))
    if runs and #runs >= most then
      if instead then
        carry_out(instead)
        return {'instead', number - 1}
      end
      return {'full', number - 1, {unpack(runs, 1, min(#runs, BLOCKING_MAX))}}
    end
  end
end

local reply = {now, broken_schedules, broken_lines}
for at = 3, #ARGV, 3 do
  commit, head, fixed, unsaved = {}, ARGV[at + 1], ARGV[at + 2], {}
  commit.id, commit.name, commit.expects, commit.writes, commit.declares, commit.not_before,
    commit.run, commit.tick, commit.start_on, commit.rooms, commit.lines, commit.run_line =
    decode(ARGV[at])
  local names = {commit.name}
  for n, expected in ipairs(commit.expects) do
    names[n + 1] = expected[1]
  end
  known = schedules_of(names)
  local answer = repeated() or stale() or (commit.not_before > now and {'early'})
    or (head ~= '' and commit.start_on ~= '' and homeless()) or full()
    or carry_out(commit.run_line, head ~= '')
  reply[#reply + 1] = {pack(answer), unpack(run)}
end
ring()
return reply
