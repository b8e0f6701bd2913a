-- Record that a replica with these rulers is alive.
--
-- ARGV: now, bells, for each: name, ruler
-- Returns the names that do not exist or have another ruler.

local reply = {now, broken_schedules, broken_lines}
for at = 3, #ARGV, 2 do
  local name = ARGV[at]
  local one, age = schedules_of({name})[name], now - declared_at(name)
  if not one or one.ruler ~= ARGV[at + 1] then
    reply[#reply + 1] = name
  elseif age < 0 or age >= DECLARED_ANEW_AFTER then
    call('ZADD', DECLARED, now, name)
  end
end
return reply
