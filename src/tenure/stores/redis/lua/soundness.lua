-- In front of every script: whether stored values can be used. Whoever can write to the server can write
-- anything, so numbers are compared before they are counted up. The bounds are those of
-- core.soundness, times in microseconds. NaN is within none.

local INSTANT_MAX, COUNTER_MAX, SPAN_MAX = 253402300799999999, 2147483646, 1e16
local LIMIT_MAX = 1000000

local function is_whole(number, least, most)
  return type(number) == 'number' and number >= least and number <= most
    and math.floor(number) == number
end

local function is_instant(number)
  return is_whole(number, -INSTANT_MAX, INSTANT_MAX)
end

