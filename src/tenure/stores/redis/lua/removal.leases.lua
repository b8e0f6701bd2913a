-- The beginning of every lease script that a full server has to run, see scripts.py: no lease key has
-- a NUL in its name.
redis.call('ZREM', KEYS[1], '\0')

