-- Give leases their full ttl again, counted from now; what has ended is never resurrected.
--
-- KEYS: names, then for each lease the four of its lease key
-- ARGV: now, then for each lease: name, holder, fence, ttl
-- Returns for each lease 1, or 0 if this very lease is not there, or 2 if that cannot be read.

local answers, crowded = {}, {}
for n = 1, (#ARGV - 1) / 4 do
  local at = 4 * n - 2  -- of its keys, and of its arguments
  local kind, holder, fence, since, _, _, limit, meta = look(at, ARGV[at], head_of(at))
  answers[n] = kind == UNREADABLE and 2 or 0
  if kind == CROWD then
    crowded[#crowded + 1] = n
  elseif kind and holder == ARGV[at + 1] and fence == tonumber(ARGV[at + 2]) then
    save_alone(at, holder, fence, since, now, tonumber(ARGV[at + 3]), limit, meta)
    answers[n] = 1
  end
end
if #crowded == 0 then
  return answers
end

