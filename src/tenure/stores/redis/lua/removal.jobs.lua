-- The beginning of every other script that a full server has to run, see scripts.py: no id of a job
-- and no name of a queue has a NUL in it.
redis.call('HDEL', KEYS[1], '\0')

