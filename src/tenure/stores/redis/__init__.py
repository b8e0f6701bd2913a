"""The Redis store: the contract as Lua scripts, for Redis (6.2 and later) and Valkey.

One connection carries all calls of a store object, in batches while it is busy. A second one,
opened by the first `watch`, receives wake-ups. All keys of a namespace start with
`{tenure:<namespace>}:`.
"""

from tenure.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
