"""The least rights of a Redis user: Tenure's keys and channels, and a list of commands.

Scripts run with the rights of their caller, so the list includes the commands in scripts.
"""

from __future__ import annotations

from typing import Final

__all__ = ["COMMANDS", "NEEDED_RIGHTS"]

COMMANDS: Final = (
    *("ping", "select", "info", "time", "cluster|slots", "subscribe", "unsubscribe", "publish"),
    *("evalsha", "script|load"),
    *("get", "mget", "set", "del", "pexpire"),
    *("hget", "hmget", "hgetall", "hkeys", "hscan", "hlen", "hexists", "hset", "hincrby", "hdel"),
    *("zadd", "zrem", "zcard", "zscore", "zmscore", "zrank", "zlexcount"),
    *("zrange", "zrangebylex", "zrangebyscore", "zrevrangebylex", "zrevrangebyscore"),
)
"""All commands of this store, in scripts or not. None lists or empties a database. The only one
that Redis calls dangerous is INFO, which shows the guarantees of the server."""

NEEDED_RIGHTS: Final = " ".join(
    [
        *("resetkeys", "~{tenure:*", "resetchannels", "&{tenure:*", "-@all"),
        *(f"+{command}" for command in COMMANDS),
    ]
)
"""The rights as arguments of ACL SETUSER."""
