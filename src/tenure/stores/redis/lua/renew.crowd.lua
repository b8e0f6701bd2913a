-- The rest of renew: leases in crowds.

for _, n in ipairs(crowded) do
  local at = 4 * n - 2
  local crowd = crowd_now(at, ARGV[at])
  local lease = crowd and lease_of(crowd, ARGV[at + 1])
  if lease and lease.fence == tonumber(ARGV[at + 2]) then
    extend(crowd, ARGV[at + 1], lease, tonumber(ARGV[at + 3]))
    answers[n] = 1
  end
end
return answers
