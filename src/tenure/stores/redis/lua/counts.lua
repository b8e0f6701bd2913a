-- Count the jobs of queues.
--
-- ARGV: now, bells, names of queues
-- Returns for each {waiting, running, time since the oldest was due or -1,
--   time until it resumes, 'inf' or '', reason of that pause}.

-- Return the earliest due time among the first jobs of a priority. Within a millisecond the order is
-- by id, so it compares up to a hundred.
local function earliest_like(first, at)
  local due = sub(first, at + 1, at + 16)
  local same = call('ZRANGEBYLEX', WAITING, '[' .. first,
    '(' .. sub(first, 1, at) .. format('%016d', tonumber(due) + 1), 'LIMIT', 0, 100)
  local rest = 999
  for _, member in ipairs(same) do
    rest = min(rest, tonumber(sub(member, -3)) or 999)
  end
  return tonumber(due) * 1000 + rest
end

-- Return the earliest due time of those places of a queue that begin with a prefix.
local function earliest(prefix)
  local from, till, at = '[' .. prefix .. '0', '(' .. prefix .. ':', #prefix + 1
  local found = math.huge
  for _ = 1, 100 do
    local first = call('ZRANGEBYLEX', WAITING, from, till, 'LIMIT', 0, 1)[1]
    if not first then
      break
    elseif is_place(first, at + 1) then
      found = min(found, earliest_like(first, at))
      from = '[' .. prefix .. string.char(string.byte(first, at) + 1)
    else
      from = '(' .. first  -- the next claim removes it
    end
  end
  return found
end

local function oldest(queue)
  local ready, later = earliest(queue .. '\0'), earliest(queue .. '\0' .. LATER)
  local found = later <= now and min(ready, later) or ready
  return found < math.huge and max(0, now - found) or -1
end

local function pause_of(queue)
  local till, reason = string.match(call('HGET', PAUSED, queue) or '', '^(%S+) ?(.*)$')
  till = tonumber(till)
  if not till or not (till > now) then
    return '', ''
  end
  return till > INSTANT_MAX and 'inf' or format('%.0f', till - now), reason
end

local function running(queue)
  local count = tonumber(call('HGET', RUNNING, queue) or 0)
  return is_whole(count, 0, COUNTER_MAX) and count or 0
end

local answers = {}
for n = 3, #ARGV do
  local queue = ARGV[n]
  answers[n - 2] = {
    call('ZLEXCOUNT', WAITING, '[' .. queue .. '\0', '(' .. queue .. '\1'),
    running(queue), oldest(queue), pause_of(queue)}
end
return answers
