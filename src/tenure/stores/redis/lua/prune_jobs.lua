-- Remove finished jobs whose retention is over, and unique keys that are free.
--
-- ARGV: now, bells, most jobs, most keys
-- Returns {jobs removed, entries looked at, keys removed}.

local over = call('ZRANGEBYSCORE', FINISHED, '-inf', now, 'LIMIT', 0, ARGV[3])
local ids, tagged, broken = {}, {}, {}
for _, member in ipairs(over) do
  local id = string.match(member, '[^%z]+')
  if id and sub(member, 1, 1) == '\0' then
    broken[#broken + 1] = id  -- a job may have this id again
  elseif id then  -- otherwise the entry is damaged, and is removed with the others
    ids[#ids + 1] = id
    if #id < #member then
      tagged[#tagged + 1] = id
    end
  end
end

-- The record of a job that was set aside may not name its unique key. Only the key's record names the job,
-- so it visits all of them, unless there are very many: then a free key stays.
local function forget_keys_of(aside)
  if call('HLEN', UNIQUE) > 10000 then
    return
  end
  local is_aside, keys = {}, call('HGETALL', UNIQUE)
  for _, id in ipairs(aside) do
    is_aside[id] = true
  end
  for n = 1, #keys, 2 do
    local id, _, till = read_key(keys[n])
    if not id or (is_aside[id] and till <= now) then
      call('HDEL', UNIQUE, keys[n])
    end
  end
end

if #over > 0 then
  call('ZREM', FINISHED, unpack(over))
end
-- Records are not read, because results may be large: removing an absent id from an index is harmless.
if #ids > 0 then
  for _, id in ipairs(tagged) do
    forget_tags_of(id, call('HGET', FIXED, id) or '')
  end
  for _, index in pairs(INDEX) do
    call('ZREM', index, unpack(ids))
  end
  call('HDEL', STATE, unpack(ids))
  call('HDEL', FIXED, unpack(ids))
end
if #broken > 0 then
  call('HDEL', BROKEN, unpack(broken))
  forget_keys_of(broken)
end
local keys = call('ZRANGEBYSCORE', ENDS, '-inf', now, 'LIMIT', 0, ARGV[4])
if #keys > 0 then
  call('HDEL', UNIQUE, unpack(keys))
  call('ZREM', ENDS, unpack(keys))
end
return {#ids, #over, #keys}
