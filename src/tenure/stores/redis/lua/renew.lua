-- Give leases their full ttl again, counted from now. An ended lease is never resurrected.
--
-- KEYS: names, then for each lease the four of its lease key
-- ARGV: now, then for each lease: name, holder, fence, ttl (negative if it was released, and stays
--       for that long)
-- Returns for each lease 1, or 0 if this very lease is not there, or 2 if that cannot be read.

local answers, crowded = {}, {}
for n = 1, (#ARGV - 1) / 4 do
  local at = 4 * n - 2  -- of its keys, and of its arguments
  local kind, holder, fence, since, _, _, limit, meta, kept, expired =
    look(at, ARGV[at], head_of(at))
  answers[n] = kind == UNREADABLE and 2 or 0
  if kind == CROWD then
    crowded[#crowded + 1] = n
  elseif kind and holder == ARGV[at + 1] and fence == tonumber(ARGV[at + 2]) then
    local ttl = tonumber(ARGV[at + 3])
    save_alone(at, holder, fence, since, now, math.abs(ttl), limit, meta, kept or ttl < 0, expired)
    answers[n] = 1
  end
end
if #crowded == 0 then
  return answers
end

-- Insert crowd.lua here.

local function renew(at)
  local crowd = crowd_now(at, ARGV[at])
  local lease = crowd and lease_of(crowd, ARGV[at + 1])
  if lease and lease.fence == tonumber(ARGV[at + 2]) then
    local ttl = tonumber(ARGV[at + 3])
    lease.kept = lease.kept or ttl < 0
    extend(crowd, ARGV[at + 1], lease, math.abs(ttl))
    return 1
  end
  return 0
end

for _, n in ipairs(crowded) do
  local readable, answer = pcall(renew, 4 * n - 2)
  answers[n] = readable and answer or 2
end
return answers
