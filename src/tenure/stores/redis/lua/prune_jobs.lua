-- Remove finished jobs whose retention is over, and unique keys that are free.
--
-- ARGV: now, bells, most jobs, most keys
-- Returns {jobs removed, entries looked at, keys removed}.

local over = call('ZRANGEBYSCORE', FINISHED, '-inf', now, 'LIMIT', 0, ARGV[3])
local ids, index, broken = {}, {}, {}
for _, member in ipairs(over) do
  local id, state = sub(member, 1, -3), sub(member, -1)
  if state == '9' then
    broken[#broken + 1] = id  -- there may be a job of this id again
  else
    ids[#ids + 1] = id
    index[#ids] = state .. id
  end
end

-- Only what is fixed names the tags, and only some jobs have any.
local function forget_tags(id, record)
  local readable, job = pcall(read, id, record or '')
  local fixed = readable and job.tagged > 0 and call('HGET', FIXED, id)
  if fixed then
    local _, _, tags = decode_some(fixed, 2)
    for _, tag in ipairs(tags) do
      call('ZREM', TAGS, tag .. '\0' .. id)
    end
  end
end

if #over > 0 then
  call('ZREM', FINISHED, unpack(over))
end
if #ids > 0 then
  for n, record in ipairs(call('HMGET', STATE, unpack(ids))) do
    forget_tags(ids[n], record)
  end
  call('HDEL', STATE, unpack(ids))
  call('HDEL', FIXED, unpack(ids))
  call('ZREM', IDS, unpack(index))
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
