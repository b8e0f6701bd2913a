-- Prelude of every script: checks that stored values are sound. Every program with access to the server
-- can write anything, so numbers are checked before they are incremented. The bounds are those of
-- core.bounds, with times in microseconds. NaN is within none.

local INSTANT_MAX, COUNTER_MAX, SPAN_MAX = 253402300799999999, 2147483646, 1e16
local LIMIT_MAX = 1000000
-- Lua rounds INSTANT_MAX up to a number that clients reject. This is the double below it.
local LATEST = 253402300799999968

local function is_whole(number, least, most)
  return type(number) == 'number' and number >= least and number <= most
    and math.floor(number) == number
end

local function is_instant(number)
  return is_whole(number, -LATEST, LATEST)
end

-- All UTF-8 sequences but ASCII.
local CHARACTERS = {'[\194-\223][\128-\191]', '\224[\160-\191][\128-\191]',
  '[\225-\236\238\239][\128-\191][\128-\191]', '\237[\128-\159][\128-\191]',
  '\240[\144-\191][\128-\191][\128-\191]', '[\241-\243][\128-\191][\128-\191][\128-\191]',
  '\244[\128-\143][\128-\191][\128-\191]'}

local function is_ascii(value)
  return not string.find(value, '[\128-\255]')
end

-- Whether a value is text that clients can read. Most is ASCII.
local function is_text(value)
  if type(value) ~= 'string' or is_ascii(value) then
    return type(value) == 'string'
  end
  for _, character in ipairs(CHARACTERS) do
    value = string.gsub(value, character, '.')
  end
  return is_ascii(value)
end

