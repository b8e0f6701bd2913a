-- Return schedules by name; those that are not there are left out.
--
-- ARGV: now, bells, names
-- Returns for each {name} if it cannot be read, else {name, record or '', planted, definition, declared, unfinished runs, freeze or '',
--   latest decision or ''}.

-- Nobody else is served meanwhile, so only so many runs are looked at, over all schedules: thousands
-- need not be exact.
local runs_left = 2000

local function live(name)
  local counted = count_live(name)
  if counted == 0 or counted > runs_left then
    return counted
  end
  runs_left = runs_left - counted
  return #live_runs(name, counted)
end

local answers = {}
for n = 3, #ARGV do
  local name = ARGV[n]
  local one, freeze = schedule_of(name), call('HGET', FREEZES, name) or ''
  if one then
    local definition, latest = definition_of(name), places_of_decisions(one, 1)[1]
    answers[#answers + 1] = {name, call('HGET', SCHEDULES, name), definition.planted,
      definition.text, declared_at(name), live(name), freeze,
      latest and call('HGET', DECISIONS, latest) or ''}
  elseif call('HEXISTS', SCHEDULES, name) == 1 then
    answers[#answers + 1] = {name}
  elseif name == EVERYTHING and freeze ~= '' then
    answers[#answers + 1] = {name, '', 0, '', 0, 0, freeze, ''}
  end
end
return answers
