-- Set aside what the last claim of a replica got and its client cannot read.
--
-- ARGV: now, bells, replica, then the ids that it can read
-- Returns the ids of the others.

local replica, readable, answers = ARGV[3], {}, {}
for n = 4, #ARGV do
  readable[ARGV[n]] = true
end
for id in string.gmatch(call('HGET', CLAIMS, replica) or '', '[^%z]+') do
  if not readable[id] and drop_held(replica, id) then
    set_aside(id, call('HGET', STATE, id))
    answers[#answers + 1] = id
  end
end
flush()
return answers
