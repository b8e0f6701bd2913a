-- Set aside what the last claim of a replica got and its client cannot read.
--
-- ARGV: now, bells, replica, then the ids that it can read
-- Returns the ids of the others.

local replica, readable, answers = ARGV[3], {}, {}
for n = 4, #ARGV do
  readable[ARGV[n]] = true
end
for id in string.gmatch(call('HGET', CLAIMS, replica) or '', '[^%z]+') do
  local entry = replica .. '\0' .. id
  local member = call('ZRANGEBYLEX', HELD, '[' .. entry .. '\0', '(' .. entry .. '\1',
    'LIMIT', 0, 1)[1]
  if member and not readable[id] then
    call('ZREM', HELD, member)
    call('ZREM', CANCELS, entry)
    count_running(sub(member, #entry + 2), -1)
    set_aside(id, call('HGET', STATE, id))
    answers[#answers + 1] = id
  end
end
flush()
return answers
