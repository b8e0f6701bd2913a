-- Give leases their full ttl again, counted from now; what has ended is never resurrected.
--
-- KEYS: names, then for each lease the four of its lease key
-- ARGV: now, then for each lease: name, holder, fence, ttl
-- Returns for each lease 1, or 0 if this very lease is not there.

local function renew(at, name, holder, fence, ttl)
  local key = look(at, name)
  local lease = key and lease_of(key, holder)
  if not lease or lease.fence ~= fence then
    return 0
  end
  lease.renewed, lease.ttl = now, ttl
  if key.holder then
    save_alone(lease)
    return 1
  end
  lease.life = ttl
  write_info(key, holder, lease)
  call('ZADD', KEYS[at + 1], now + ttl, holder)
  key.seen = now
  keep_crowd(key, ttl)
  save_crowd(key)
  return 1
end

local answers = {}
for n = 1, (#ARGV - 1) / 4 do
  local arg = 4 * n - 2
  answers[n] = renew(arg, ARGV[arg], ARGV[arg + 1], tonumber(ARGV[arg + 2]),
    tonumber(ARGV[arg + 3]))
end
return answers
