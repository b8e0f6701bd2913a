-- Returns the commands that the other scripts call and this user may not run. `tenure doctor` runs it on
-- an unused key, without effect on other keys.

local KEY, CHANNEL = KEYS[1], ARGV[2]

local tries = {
  {'TIME'}, {'PUBLISH', CHANNEL, ''},
  {'GET', KEY}, {'MGET', KEY}, {'SET', KEY, '', 'XX'}, {'PEXPIRE', KEY, '1'},
  {'HGET', KEY, ''}, {'HMGET', KEY, ''}, {'HGETALL', KEY}, {'HKEYS', KEY}, {'HSCAN', KEY, '0'},
  {'HLEN', KEY},
  {'HEXISTS', KEY, ''}, {'HSET', KEY, '', ''}, {'HINCRBY', KEY, 'n', '1'}, {'HDEL', KEY, '', 'n'},
  {'ZADD', KEY, 'XX', '0', ''}, {'ZREM', KEY, ''}, {'ZCARD', KEY}, {'ZSCORE', KEY, ''},
  {'ZMSCORE', KEY, ''},
  {'ZRANK', KEY, ''}, {'ZLEXCOUNT', KEY, '-', '+'}, {'ZRANGE', KEY, '0', '0'},
  {'ZRANGEBYLEX', KEY, '-', '+'}, {'ZRANGEBYSCORE', KEY, '0', '0'},
  {'ZREVRANGEBYLEX', KEY, '+', '-'}, {'ZREVRANGEBYSCORE', KEY, '0', '0'},
  {'DEL', KEY},
}

local refused = {}
for _, words in ipairs(tries) do
  local reply = redis.pcall(unpack(words))
  local said = type(reply) == 'table' and reply.err
  if said and (said:find('NOPERM') or said:find('ACL failure') or said:find('The user executing'))
  then
    refused[#refused + 1] = words[1]
  end
end
return refused
