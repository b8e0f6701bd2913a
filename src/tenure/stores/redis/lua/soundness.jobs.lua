-- Whether the first values of a job's record, down to its replica, are such; see `read` in jobs.lua.
local function is_sound(record, length, timeout, retention, queue, priority, tagged, key, created,
    state, fence, attempt, started, revision, cancelling, due, replica)
  return is_whole(length, 1, #record) and is_whole(timeout, -1, SPAN_MAX)
    and is_whole(retention, 0, SPAN_MAX) and type(queue) == 'string' and is_whole(priority, 0, 9)
    and is_whole(tagged, 0, 1000) and (key == nil or type(key) == 'string')
    and is_instant(created) and is_whole(state, 0, 4)
    and is_whole(fence, 0, INSTANT_MAX) and is_whole(attempt, 0, COUNTER_MAX)
    and is_whole(started, 0, INSTANT_MAX) and is_whole(revision, 0, COUNTER_MAX)
    and is_whole(cancelling, 0, 1) and is_whole(due, 0, INSTANT_MAX) and type(replica) == 'string'
end

