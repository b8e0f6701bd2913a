-- The rest of prune: lease keys with crowds.

for _, one in ipairs(crowded) do
  local readable, crowd = pcall(crowd_now, one.at, one.name)
  if readable and not crowd and one.unused then
    pruned = pruned + 1
  end
end
return {pruned}
