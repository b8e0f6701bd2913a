-- Say how queues stand.
--
-- ARGV: now, bells, names of queues
-- Returns for each {waiting, running, time since the oldest was due or -1,
--   time until it resumes, 'inf' or ''}.

-- The first of each priority: within one they are ordered by due time.
local function oldest(queue)
  local from, till, at = '[' .. queue .. '\0', '(' .. queue .. '\1', #queue + 2
  local earliest = math.huge
  while true do
    local first = call('ZRANGEBYLEX', WAITING, from, till, 'LIMIT', 0, 1)[1]
    if not first then
      return earliest <= now and now - earliest or -1
    end
    earliest = min(earliest, tonumber(sub(first, at + 1, at + 16)) * 1000 + sub(first, -3))
    from = '[' .. queue .. '\0' .. string.char(string.byte(first, at) + 1)
  end
end

local function paused_for(queue)
  local till = call('HGET', PAUSED, queue)
  if not till or tonumber(till) <= now then
    return ''
  end
  return till == 'inf' and till or format('%.0f', tonumber(till) - now)
end

local answers = {}
for n = 3, #ARGV do
  local queue = ARGV[n]
  answers[n - 2] = {
    call('ZLEXCOUNT', WAITING, '[' .. queue .. '\0', '(' .. queue .. '\1'),
    tonumber(call('HGET', RUNNING, queue) or 0), oldest(queue), paused_for(queue)}
end
return answers
