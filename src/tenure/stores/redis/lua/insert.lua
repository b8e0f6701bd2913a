-- Store jobs.
--
-- ARGV: now, bells, number of jobs,
--       then for each: id, queue NUL priority, delay ('@' and the instant; empty: due now),
--                      the head of its record, what is fixed,
--       then the number of each job with a unique key, 0, and the number of each with tags
-- Returns now, then for each '' if it was created, else {1 if it has the same digest, its id}.

local total = tonumber(ARGV[3])
local answers, ids, seen = {now}, {}, {}
for n = 1, total do
  ids[n] = ARGV[5 * n - 1]
end

local function head_of(n)
  return ARGV[5 * n + 2]
end

local function fixed_of(n)
  return ARGV[5 * n + 3]
end

local uniques, arg = {}, 5 * total + 4
while ARGV[arg] ~= '0' do
  local n = tonumber(ARGV[arg])
  local _, key = traces_in(head_of(n))
  uniques[n] = {key, demands_of(fixed_of(n))}
  arg = arg + 1
end

-- All look-ups come before the first write.
local found, fresh, owners = call('HMGET', STATE, unpack(ids)), {}, {}
if call('HLEN', BROKEN) > 0 then
  for n, aside in ipairs(call('HMGET', BROKEN, unpack(ids))) do
    found[n] = found[n] or aside  -- it exists, although it is unreadable
  end
end

-- Return the answer for a job whose unique key another one has.
local function refusal(n)
  local key, digest = unpack(uniques[n], 1, 2)
  local first = owners[key]
  local id, other
  if first then
    id, other = ids[first], uniques[first][2]
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

local rests, places = {}, {}  -- by due time: mostly the same for all

local function due_of(when)
  if when == '' then
    return now
  end
  return sub(when, 1, 1) == '@' and tonumber(sub(when, 2)) or now + when
end

local function prepare(when)
  local due = due_of(when)
  rests[when] = new_record('', middle(WAITS, 0, 0, 0, 1, 0, max(0, due)), '')
  places[when] = {format('%016d', floor(max(0, due) / 1000)), format('\0%03d', due % 1000), due}
end

local fixed, states = words_for('HSET', FIXED), words_for('HSET', STATE)
local waiting, index = words_for('ZADD', WAITING), words_for('ZADD', UNFINISHED)
for i, n in ipairs(fresh) do
  local id, queue, when = ids[n], ARGV[5 * n], ARGV[5 * n + 1]
  if not rests[when] then
    prepare(when)
  end
  local place_of = places[when]
  local milliseconds, rest, due = place_of[1], place_of[2], place_of[3]
  local odd = 2 * i + 1  -- in commands, after their first two words
  fixed[odd], fixed[odd + 1] = id, fixed_of(n)
  states[odd], states[odd + 1] = id, head_of(n) .. rests[when]
  local stands = queue
  if due > now then
    stands = sub(queue, 1, -2) .. LATER .. sub(queue, -1)
    if sub(when, 1, 1) ~= '@' then
      gather('ZADD', PAUSES, now, id)
    end
  end
  waiting[odd], waiting[odd + 1] = '0', stands .. milliseconds .. id .. rest
  index[odd], index[odd + 1] = '0', id
  if due <= now + SOON then
    awaited[sub(queue, 1, -3)] = true
  end
end
for key, n in pairs(owners) do
  take_key(key, ids[n], unpack(uniques[n], 2, 4))
end
for at = arg + 1, #ARGV do
  local n = tonumber(ARGV[at])
  if seen[ids[n]] == n then
    local _, _, tags = decode_some(fixed_of(n), 2)
    for _, tag in ipairs(tags) do
      gather('ZADD', TAGS, '0', tag .. '\0' .. ids[n])
    end
  end
end
flush()
ring()
return answers
