-- Raises an error if two values cannot be compared; that costs less than to ask each for its type.
-- Of other numbers than those that make a place in a queue, fractions do no harm: the whole record is
-- checked where it is read.
local function is_within(record, length, timeout, retention, retention_failed, queue, priority,
    tagged, key, created, state, fence, attempt, started, revision, cancelling, due, replica)
  return length >= 1 and length <= #record and timeout >= -1 and timeout <= SPAN_MAX
    and retention >= 0 and retention <= SPAN_MAX
    and retention_failed >= 0 and retention_failed <= SPAN_MAX and type(queue) == 'string'
    and priority >= 0 and priority <= 9 and priority % 1 == 0 and tagged >= 0 and tagged <= 1000
    and (key == nil or type(key) == 'string')
    and created >= -INSTANT_MAX and created <= INSTANT_MAX
    and (state == 0 or state == 1 or state == 2 or state == 3 or state == 4)
    and fence >= 0 and fence <= INSTANT_MAX and attempt >= 0 and attempt <= COUNTER_MAX
    and started >= 0 and started <= INSTANT_MAX and revision >= 0 and revision <= COUNTER_MAX
    and (cancelling == 0 or cancelling == 1) and due >= 0 and due <= INSTANT_MAX
    and due % 1 == 0
    and type(replica) == 'string'
end

-- Whether the first values of a job's record, down to its replica, are such; see `read` in jobs.lua.
local function is_sound(...)
  local comparable, within = pcall(is_within, ...)
  return comparable and within
end

