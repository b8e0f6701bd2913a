-- Whether the values of a head, or of details in a crowd, are such; see prelude.lua.
local function is_lease(holder, fence, since, renewed, ttl, limit, meta)
  return type(holder) == 'string' and is_whole(fence, 0, INSTANT_MAX) and is_instant(since)
    and is_instant(renewed) and is_whole(ttl, 0, SPAN_MAX) and is_whole(limit, 1, LIMIT_MAX)
    and type(meta) == 'string'
end

local function is_crowd(seen, kept, granted, waiters, limits, strictest)
  if not (is_instant(seen) and is_instant(kept) and is_instant(granted)
    and is_whole(waiters, 0, LIMIT_MAX) and type(limits) == 'table'
    and is_whole(strictest, 0, LIMIT_MAX)) then
    return false
  end
  for limit, holders in pairs(limits) do
    if not (is_whole(limit, 1, LIMIT_MAX) and is_whole(holders, 1, LIMIT_MAX)) then
      return false
    end
  end
  return true
end

