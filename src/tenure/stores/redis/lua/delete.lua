-- Delete jobs. The client has read each of them, and decided.
--
-- ARGV: now, bells, for each: id, SHA-1 of its record and what is fixed of it, as the client has read them,
--       1 if the client could read it
-- Returns for each 0 if there is no such job, 1 if it is gone, 2 if it was changed meanwhile.

-- If the record is unreadable, its index entries can only be found by a search. Redis serves no other
-- client meanwhile, so it visits only a part of a very long index: a claim drops the remaining entry.
local LOOKED_AT = 100000

local function remove_where(index, belongs)
  for first = 0, LOOKED_AT - 1, 1000 do
    local members, found = call('ZRANGE', index, first, first + 999), {}
    for _, member in ipairs(members) do
      if belongs(member) then
        found[#found + 1] = member
      end
    end
    if #found > 0 then
      call('ZREM', index, unpack(found))
      return
    end
    if #members < 1000 then
      return
    end
  end
end

local function remove_from_holders(id)
  for _, name in ipairs(holders(1000)) do
    drop_held(name, id)
  end
end

local function remove_key(key, id)
  if key and read_key(key) == id then
    call('HDEL', UNIQUE, key)
    call('ZREM', ENDS, key)
  end
end

-- Only the record of a unique key names its job. With very many keys it stays until it is free by time.
local function remove_keys_of(id)
  if call('HLEN', UNIQUE) <= 10000 then
    for _, key in ipairs(call('HKEYS', UNIQUE)) do
      remove_key(key, id)
    end
  end
end

local function remove_traces(id)
  remove_from_holders(id)
  remove_where(WAITING, function(member) return sub(member, -#id - 4, -5) == id end)
  remove_where(TAGS, function(member) return sub(member, -#id - 1) == '\0' .. id end)
  remove_keys_of(id)
end

local function remove(id, record, fixed, readable)
  forget_tags_of(id, fixed)
  local queue, key, schedule = traces_in(record)
  if queue and schedule ~= '' then
    call('ZREM', LIVE, place_of_run(schedule, id, queue))
  end
  remove_key(key, id)
  local job = job_of(id)
  if job and job.state == WAITS and readable then
    leave_queue(job)
  elseif not job or job.state <= RUNS then
    remove_traces(id)
  end
  call('HDEL', STATE, id)
  call('HDEL', FIXED, id)
  call('HDEL', BROKEN, id)
  call('ZREM', FINISHED, id, id .. '\0', '\0' .. id)
  for _, index in ipairs({UNFINISHED, DEADLINES, PAUSES, INDEX[2], INDEX[3], INDEX[4]}) do
    call('ZREM', index, id)
  end
end

local answers = {}
for at = 3, #ARGV, 3 do
  local id = ARGV[at]
  local record, fixed = call('HGET', STATE, id) or '', call('HGET', FIXED, id) or ''
  if redis.sha1hex(record .. fixed) ~= ARGV[at + 1] then
    answers[#answers + 1] = 2
  elseif record .. fixed == '' and call('HEXISTS', BROKEN, id) == 0 then
    answers[#answers + 1] = 0
  else
    remove(id, record, fixed, ARGV[at + 2] == '1')
    known[id] = nil
    changed[#changed + 1] = id
    answers[#answers + 1] = 1
  end
end
flush()
ring()
return answers
