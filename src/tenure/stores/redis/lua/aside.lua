-- Set aside jobs of a replica that the client cannot read.
--
-- ARGV: now, bells, replica, then '' and the ids of its last claim that can be read, or the ids that cannot
-- Returns the ids that were set aside.

local replica, readable, doomed, answers = ARGV[3], {}, {unpack(ARGV, 4)}, {}
if ARGV[4] == '' then
  for n = 5, #ARGV do
    readable[ARGV[n]] = true
  end
  doomed = {}
  for id in string.gmatch(call('HGET', CLAIMS, replica) or '', '[^%z]+') do
    doomed[#doomed + 1] = not readable[id] and id or nil
  end
end
for _, id in ipairs(doomed) do
  if drop_held(replica, id) then
    set_aside(id, call('HGET', STATE, id))
    answers[#answers + 1] = id
  end
end
flush()
return answers
