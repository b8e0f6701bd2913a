-- Remove finished jobs whose retention is over, and unique keys that are free.
--
-- ARGV: now, bells, most jobs, most keys
-- Returns {jobs removed, entries looked at, keys removed}.

local over = call('ZRANGEBYSCORE', FINISHED, '-inf', now, 'LIMIT', 0, ARGV[3])
local ids, tagged, broken = {}, {}, {}
for _, member in ipairs(over) do
  local id = string.match(member, '[^%z]+')
  if sub(member, 1, 1) == '\0' then
    broken[#broken + 1] = id  -- there may be a job of this id again
  else
    ids[#ids + 1] = id
    if #id < #member then
      tagged[#tagged + 1] = id
    end
  end
end

local function forget_tags(id)
  local _, _, tags = decode_some(call('HGET', FIXED, id), 2)
  for _, tag in ipairs(tags) do
    call('ZREM', TAGS, tag .. '\0' .. id)
  end
end

if #over > 0 then
  call('ZREM', FINISHED, unpack(over))
end
-- Records are not read, as results may be large: an index that does not have an id does not mind.
if #ids > 0 then
  for _, id in ipairs(tagged) do
    pcall(forget_tags, id)
  end
  for _, index in pairs(INDEX) do
    call('ZREM', index, unpack(ids))
  end
  call('HDEL', STATE, unpack(ids))
  call('HDEL', FIXED, unpack(ids))
end
if #broken > 0 then
  call('HDEL', BROKEN, unpack(broken))
end
local keys = call('ZRANGEBYSCORE', ENDS, '-inf', now, 'LIMIT', 0, ARGV[4])
if #keys > 0 then
  call('HDEL', UNIQUE, unpack(keys))
  call('ZREM', ENDS, unpack(keys))
end
return {#ids, #over, #keys}
