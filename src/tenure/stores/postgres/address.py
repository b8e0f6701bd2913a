"""Parses a PostgreSQL URL: where to connect, with which settings, and how to show it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from tenure.core.redaction import Secret, redact
from tenure.errors import ConfigError

__all__ = ["CALL_TIMEOUT", "CONNECT_TIMEOUT", "POOL_SIZE", "Address", "connections_most"]

# Seconds after which the client gives up.
CONNECT_TIMEOUT = 5.0
CALL_TIMEOUT = 5.0

POOL_SIZE = 8
"""More connections would not make one event loop faster, and a server has about a hundred."""
_POOL_SIZE_MAX = 100

# The settings of each session; the URL may override them.
_SESSION = {
    "application_name": "tenure",
    # Shorter than the client's time-out, so that the server's error arrives and the connection
    # survives.
    "statement_timeout": "4000",
    # The functions must see what was committed while they waited for a lock.
    "default_transaction_isolation": "read committed",
    # JIT compilation takes longer than any statement of the store.
    "jit": "off",
}


# The end of a host: a port or none. An address of IPv6 has colons in its brackets.
_PORT = re.compile(r"^(\[[^\]]*\]|[^:]*)(:\d*)?$")


@dataclass(frozen=True)
class Address:
    """A parsed PostgreSQL URL.

    `shares_sessions` is set by `?statement_cache_size=0`: with a pooler in transaction mode, such
    as PgBouncer, two calls may use different sessions. Then nothing may be left in a session: no
    prepared statement, no setting, no LISTEN.
    """

    url: Secret[str]
    shown: str
    shares_sessions: bool
    options: Secret[dict[str, Any]]
    """The arguments of asyncpg.connect."""
    pool_size: int = POOL_SIZE
    """How many calls of a store object run at the same time, each on its own connection."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Parse the URL. Raises ConfigError, which does not quote it, if it cannot work."""
        parts, query = _split(url)
        cache = query.pop("statement_cache_size", "100")
        if not cache.isdecimal():
            msg = f"statement_cache_size must be a whole number, 0 behind a pooler, not {cache!r}."
            raise ConfigError(msg)
        shares_sessions = int(cache) == 0
        pool_size = _pool_size(query.pop("pool_size", str(POOL_SIZE)))
        session = {"application_name": "tenure"} if shares_sessions else _SESSION
        options: dict[str, Any] = {
            "dsn": urlunsplit(parts._replace(query=urlencode(query))),
            "statement_cache_size": int(cache),
            "timeout": CONNECT_TIMEOUT,
            "command_timeout": CALL_TIMEOUT,
            "server_settings": {
                name: setting for name, setting in session.items() if name not in query
            },
        }
        several = "," in parts.netloc or "," in query.get("host", "")
        if several and "target_session_attrs" not in query:
            # Of several hosts, use the one that takes writes, also after a fail-over.
            options["target_session_attrs"] = "read-write"
        return cls(Secret(url), redact(url), shares_sessions, Secret(options), pool_size)


def connections_most(pool_size: int) -> int:
    """Return how many connections a process opens at most.

    It has two store objects: one for the calls of its event loop, and one for renewals and beats.
    Each has a pool, and a connection for wake-ups.
    """
    return 2 * (pool_size + 1)


def _pool_size(text: str) -> int:
    if not text.isdecimal() or len(text) > 3 or not 1 <= int(text) <= _POOL_SIZE_MAX:
        msg = f"pool_size must be a whole number from 1 to {_POOL_SIZE_MAX}, not {text!r}."
        raise ConfigError(msg)
    return int(text)


def _split(url: str) -> tuple[SplitResult, dict[str, str]]:
    try:
        url.encode()  # a value from the environment may be no valid text
        parts = urlsplit(url)
        query = dict(
            parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        )
    except ValueError:
        msg = (
            "the PostgreSQL URL cannot be read. Use postgresql://user:password@host:5432/database."
        )
        raise ConfigError(msg) from None
    hosts = parts.netloc.rpartition("@")[2].split(",")
    if not all(_PORT.search(host) for host in hosts):
        # Not quoted: in a URL without '@' it is the password.
        msg = (
            "the PostgreSQL URL has a port that is no number. "
            "Use postgresql://user:password@host:5432/database."
        )
        raise ConfigError(msg)
    rest = parts._replace(scheme="", netloc="").geturl()
    if parts.netloc.count("@") > 1 or ("@" not in parts.netloc and "@" in rest):
        # Read as it stands, a part of the password would become a host or database name, and
        # appear in messages.
        msg = (
            "the PostgreSQL URL has an '@' where none can be. "
            "Write special characters of the password as %40 for '@', %2F for '/', %23 for '#' "
            "and %3F for '?'."
        )
        raise ConfigError(msg)
    return parts, query
