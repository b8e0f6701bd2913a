-- Store jobs.
--
-- ARGV: now, bells, number of jobs,
--       then for each: id, queue NUL priority, delay ('@' and the instant; empty: due now),
--                      the head of its record, what is fixed,
--       then for each that has one: number of the job, unique key, digest, keep,
--       then 0 and for each tag: number of the job, tag
-- Returns now, then for each '' if it was created, else {1 if it has the same digest, its id}.

local total = tonumber(ARGV[3])
local answers, ids, seen, uniques = {now}, {}, {}, {}
for n = 1, total do
  ids[n] = ARGV[5 * n - 1]
end
local arg = 5 * total + 4
while ARGV[arg] ~= '0' do
  uniques[tonumber(ARGV[arg])] = arg
  arg = arg + 4
end

-- Everything is looked up before the first write.
local found, fresh, owners = call('HMGET', STATE, unpack(ids)), {}, {}
if call('HLEN', BROKEN) > 0 then
  for n, aside in ipairs(call('HMGET', BROKEN, unpack(ids))) do
    found[n] = found[n] or aside  -- known, though nobody can read it
  end
end
local function refusal(n)
  local key, digest = ARGV[uniques[n] + 1], ARGV[uniques[n] + 2]
  local own = owners[key]
  local id, other
  if own then
    id, other = ids[own], ARGV[uniques[own] + 2]
  else
    id, other = owner_of(key)
  end
  if id and id ~= ids[n] then
    return {other == digest and 1 or 0, id}
  end
  owners[key] = n
end
for n = 1, total do
  answers[n + 1] = ''
  if not found[n] and not seen[ids[n]] then
    local refused = uniques[n] and refusal(n)
    if refused then
      answers[n + 1] = refused
    else
      fresh[#fresh + 1], seen[ids[n]] = n, n
    end
  end
end
if #fresh == 0 then
  return answers
end

local created = struct.pack('>BI8', 0xcf, now)
local rests, places = {}, {}  -- by due time: mostly the same for all
local function due_of(when)
  if when == '' then
    return now
  end
  return sub(when, 1, 1) == '@' and tonumber(sub(when, 2)) or now + when
end

local states, fixed, waiting, index, pauses = {}, {}, {}, {}, {}
for i = 1, #fresh do
  local at = 5 * fresh[i] - 1
  local id, queue, when = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  if not rests[when] then
    local due = due_of(when)
    rests[when] = created .. middle(WAITS, 0, 0, 0, 1, 0, max(0, due)) .. '\160' .. BLANK_END
    places[when] = {format('%016d', floor(max(0, due) / 1000)), format('\0%03d', due % 1000), due}
  end
  local parts, even = places[when], 2 * i
  states[even - 1], states[even] = id, ARGV[at + 3] .. rests[when]
  fixed[even - 1], fixed[even] = id, ARGV[at + 4]
  local stands = queue
  if parts[3] > now then
    stands = sub(queue, 1, -2) .. LATER .. sub(queue, -1)
    if sub(when, 1, 1) ~= '@' then
      pauses[#pauses + 1], pauses[#pauses + 2] = now, id
    end
  end
  waiting[even - 1], waiting[even] = '0', stands .. parts[1] .. id .. parts[2]
  index[even - 1], index[even] = '0', id
  if parts[3] <= now + SOON then
    awaited[sub(queue, 1, -3)] = true
  end
end
call('HSET', FIXED, unpack(fixed))
call('HSET', STATE, unpack(states))
call('ZADD', WAITING, unpack(waiting))
call('ZADD', UNFINISHED, unpack(index))
if #pauses > 0 then
  call('ZADD', PAUSES, unpack(pauses))
end
for key, n in pairs(owners) do
  take_key(key, ids[n], ARGV[uniques[n] + 2], tonumber(ARGV[uniques[n] + 3]))
end
-- Together, but not more at once than Lua can pass to a command.
local tags = {}
for tag = arg + 1, #ARGV, 2 do
  local n = tonumber(ARGV[tag])
  if seen[ids[n]] == n then
    tags[#tags + 1], tags[#tags + 2] = '0', ARGV[tag + 1] .. '\0' .. ids[n]
  end
  if #tags == 2000 or (#tags > 0 and tag + 2 > #ARGV) then
    call('ZADD', TAGS, unpack(tags))
    tags = {}
  end
end
ring()
return answers
