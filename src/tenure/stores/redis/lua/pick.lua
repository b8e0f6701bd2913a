-- Return the jobs among these that match the filters, up to a limit. Payloads and results may be large,
-- so it may end early.
--
-- ARGV: now, bells, limit, state or '', then of queue, task, tag, replica, end of id and text of the error
--       each '' or the text with a letter before it, then ids
-- Returns {how many were looked at, ids of those that cannot be read, then for each: id, record, fixed}.

local limit, state = tonumber(ARGV[3]), tonumber(ARGV[4])
local function wish(n)
  return ARGV[n] ~= '' and sub(ARGV[n], 2) or nil
end
local queue, task, tag, replica, id_end, text =
  wish(5), wish(6), wish(7), wish(8), wish(9), wish(10)
text = text and string.lower(text)

local function has(tags)
  for _, its_tag in ipairs(tags) do
    if its_tag == tag then
      return true
    end
  end
  return false
end

local function contains(stored)
  return stored and string.find(string.lower(sub(stored, 1, 2000)), text, 1, true)
end

local function fits(job, fixed)
  local _, its_task, its_tags = decode_some(fixed, 2)
  return (not state or job.state == state) and (not queue or job.queue == queue)
    and (not replica or job.replica == replica) and (not task or its_task == task)
    and (not tag or has(its_tags)) and (not id_end or sub(job.id, -#id_end) == id_end)
    and (not text or contains(job.error) or contains(job.reason))
end

local answers, unreadable, looked, size = {}, {}, 0, 0
for n = 11, #ARGV do
  local record, fixed = call('HGET', STATE, ARGV[n]), call('HGET', FIXED, ARGV[n])
  local readable, job = pcall(read, ARGV[n], record or '')
  looked, size = looked + 1, size + #(record or '') + #(fixed or '')
  local decided, fit = pcall(fits, job, fixed)
  if not (readable and decided) then
    unreadable[#unreadable + 1] = (record or fixed) and ARGV[n] or nil
  elseif fit then
    answers[#answers + 1] = ARGV[n]
    answers[#answers + 1] = record
    answers[#answers + 1] = fixed
  end
  if #answers == 3 * limit or size > 4000000 then
    break
  end
end
return {looked, unreadable, unpack(answers)}
