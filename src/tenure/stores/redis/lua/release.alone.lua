-- End leases, and their holders' places in the line.
--
-- KEYS: names, then for each lease the four of its lease key
-- ARGV: now, then for each lease: name, holder, fence (0: whatever it is)
-- Returns for each lease 1 if it was live, else 0.

local answers, crowded = {}, {}
for n = 1, (#ARGV - 1) / 3 do
  local at, arg = 4 * n - 2, 3 * n - 1
  local kind, holder, fence = look(at, ARGV[arg], head_of(at))
  answers[n] = 0
  if kind == CROWD then
    crowded[#crowded + 1] = n
  elseif kind and holder == ARGV[arg + 1]
    and (ARGV[arg + 2] == '0' or fence == tonumber(ARGV[arg + 2])) then
    forget(at, ARGV[arg])
    answers[n] = 1
  end
end
if #crowded == 0 then
  return answers
end

