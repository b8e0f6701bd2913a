-- Remove finished jobs whose retention is over, and unique keys that are free.
--
-- ARGV: now, bells, most jobs, most keys
-- Returns {jobs removed, entries looked at, keys removed}.

local over = call('ZRANGEBYSCORE', FINISHED, '-inf', now, 'LIMIT', 0, ARGV[3])
local ids, states, broken = {}, {[SUCCEEDED] = {}, [FAILED] = {}, [CANCELLED] = {}}, {}
for _, member in ipairs(over) do
  if sub(member, 1, 1) == '\0' then
    broken[#broken + 1] = sub(member, 2)  -- there may be a job of this id again
  else
    ids[#ids + 1] = member
  end
end

-- Only what is fixed names the tags, and only some jobs have any.
local function forget_tags(id)
  local _, _, tags = decode_some(call('HGET', FIXED, id), 2)
  for _, tag in ipairs(tags) do
    call('ZREM', TAGS, tag .. '\0' .. id)
  end
end

if #over > 0 then
  call('ZREM', FINISHED, unpack(over))
end
if #ids > 0 then
  for n, record in ipairs(call('HMGET', STATE, unpack(ids))) do
    local readable, job = pcall(read, ids[n], record or '')
    for state, index in pairs(states) do
      if not readable or job.state == state then
        index[#index + 1] = ids[n]
      end
    end
    if readable and job.tagged > 0 then
      pcall(forget_tags, ids[n])
    end
  end
  for state, index in pairs(states) do
    if #index > 0 then
      call('ZREM', INDEX[state], unpack(index))
    end
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
