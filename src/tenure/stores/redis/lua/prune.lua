-- Remove the keys of crashed holders; released keys are gone already.
--
-- KEYS: names, then for each lease key its four
-- ARGV: now, idle, then the lease keys' names
-- Returns {how many of those forgotten were last used `idle` ago}.

local idle, pruned, crowded = tonumber(ARGV[2]), 0, {}

-- Redis collects a head a day after its end at the earliest; then only the name is left.
local function idle_for(head)
  if not head then
    return math.huge
  end
  -- In the same position in all kinds of head.
  local readable, _, _, _, granted = pcall(decode, head)
  return readable and type(granted) == 'number' and now - granted or 0
end

for n = 1, #ARGV - 2 do
  local at, name = 4 * n - 2, ARGV[n + 2]
  local head = head_of(at)
  local unused = idle_for(head) >= idle
  local kind, expired, used = look(at, name, head)
  if not kind and used then
    unused = now - used >= idle
  end
  if kind == CROWD then
    crowded[#crowded + 1] = {at = at, name = name, unused = unused}
  elseif not kind and (unused or not expired) then
    forget(at, name)
    pruned = pruned + (unused and 1 or 0)
  end
end
if #crowded == 0 then
  return {pruned}
end

-- Insert crowd.lua here.

for _, key in ipairs(crowded) do
  local readable, crowd = pcall(crowd_now, key.at, key.name)
  if readable and not crowd and key.unused then
    local head = head_of(key.at)  -- only if leases have expired
    if not head or idle_for(head) >= idle then
      forget(key.at, key.name)
      pruned = pruned + 1
    end
  end
end
return {pruned}
