-- The rest of prune: lease keys with crowds.

for _, one in ipairs(crowded) do
  if not crowd_now(one.at, one.name) and one.unused then
    pruned = pruned + 1
  end
end
return {pruned}
