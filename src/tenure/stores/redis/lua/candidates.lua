-- Return ids of jobs that may match the filters, newest first, from the narrowest indexes.
--
-- ARGV: now, bells, how many, cursor or '', state or '', then of tag and replica each '' or the
--       name with a letter before it
-- Returns {how many at most in each list, list, list...}. A list of that length may go on.

local most, cursor, state = tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local tag, replica = ARGV[6], ARGV[7]

-- Return ids below the cursor that follow a prefix in an index.
local function ids_behind(index, prefix, stop)
  level(index)
  local from = cursor == '' and stop or '(' .. prefix .. cursor
  local found = call('ZREVRANGEBYLEX', index, from, '[' .. prefix, 'LIMIT', 0, most)
  for n, member in ipairs(found) do
    found[n] = string.match(member, '^[^%z]*', #prefix + 1)
  end
  return found
end

if #replica > 1 then
  local name = sub(replica, 2)
  return {most, ids_behind(HELD, name .. '\0', '(' .. name .. '\1')}
elseif tag ~= '' then
  local name = sub(tag, 2)
  return {most, ids_behind(TAGS, name .. '\0', '(' .. name .. '\1')}
end

local answers = {most}
if state == RUNS then
  -- Running jobs are indexed by replica: take the newest few of each.
  local names = holders(1000)
  most = max(1, min(most, floor(2000 / max(1, #names))))
  answers[1] = most
  for _, name in ipairs(names) do
    answers[#answers + 1] = ids_behind(HELD, name .. '\0', '(' .. name .. '\1')
  end
  return answers
end
for digit = WAITS, CANCELLED do
  local index = digit == WAITS and UNFINISHED or INDEX[digit]
  if index and (not state or state == digit) then
    answers[#answers + 1] = ids_behind(index, '', '+')
  end
end
return answers
