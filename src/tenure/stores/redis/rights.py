"""The least that a Redis user has to be allowed: its own keys and channels, and a list of commands.

Scripts run with the rights of who runs them, so what they call is listed as well.
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
"""All that this store sends, itself or in a script. None of them sees or empties a database;
of those that Redis calls dangerous there is only INFO, which tells what the server survives."""

NEEDED_RIGHTS: Final = " ".join(
    [
        *("resetkeys", "~{tenure:*", "resetchannels", "&{tenure:*", "-@all"),
        *(f"+{command}" for command in COMMANDS),
    ]
)
"""As ACL SETUSER takes them."""
