-- Count unfinished and recent jobs among the newest with a tag. Records may be large, so it may end early.
--
-- ARGV: now, bells, tag, how many to look at, most unfinished, most recent, age at which one is old
-- Returns {unfinished, recent, age of the oldest of those}.

local most, most_recent, within = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local prefix = ARGV[3] .. '\0'
level(TAGS)
local ids = call('ZREVRANGEBYLEX', TAGS, '(' .. ARGV[3] .. '\1', '[' .. prefix, 'LIMIT', 0, ARGV[4])
for n, member in ipairs(ids) do
  ids[n] = sub(member, #prefix + 1)
end

local unfinished, recent, oldest, size = 0, 0, 0, 0
for _, id in ipairs(ids) do
  if unfinished == most then
    break
  elseif call('ZSCORE', UNFINISHED, id) then
    unfinished = unfinished + 1
  end
end
for _, id in ipairs(ids) do
  if recent == most_recent or size > 4000000 then
    break
  end
  local record = call('HGET', STATE, id) or ''
  local readable, _, _, _, _, _, _, _, _, _, _, created = pcall(decode_some, record, 10)
  size = size + #record
  local age = readable and type(created) == 'number' and now - created
  if age and age >= 0 and age < within then
    recent, oldest = recent + 1, max(oldest, age)
  end
end
return {unfinished, recent, oldest}
