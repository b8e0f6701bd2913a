"""From a URL to redis-py connections: where the server is, how to log in, how long to wait."""

from __future__ import annotations

import asyncio
from inspect import signature
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

from redis import exceptions
from redis.asyncio import Connection
from redis.asyncio.connection import AbstractConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tenure.core.leases import Finding
from tenure.core.redaction import Secret, redact
from tenure.errors import ConfigError, StoreError
from tenure.stores.redis.errors import translate
from tenure.stores.redis.wire import Lost, Received, Wire

__all__ = ["Address", "dial"]

_SCHEMES = {"redis": "redis", "valkey": "redis", "rediss": "rediss", "valkeys": "rediss"}

# The driver would send CLIENT SETINFO on each connect. A user with the least rights may not, and
# Redis 6.2 knows no such right to grant: each connect would leave lines in ACL LOG.
_ANONYMOUS: dict[str, None] = (
    {"driver_info": None}
    if "driver_info" in signature(AbstractConnection).parameters
    else {"lib_name": None, "lib_version": None}  # older versions of redis-py
)

# Long enough for a server that forks or loads, short enough to notice before a lease of 30 s ends.
_TIMEOUT = 5.0


class Address:
    """What a URL says. redis-py reads it, so its options for TLS and log-in hold here too.

    Beyond redis-py's forms, `redis:///path/to/redis.sock` names a Unix socket.
    """

    moves = False
    """Whether the server behind it may be another one at the next connect; see topology.py."""

    def __init__(self, url: str) -> None:
        self.text = redact(url)
        try:
            options: dict[str, Any] = {**parse_url(_for_driver(urlsplit(url)))}
            self._make: type[Connection] = options.pop("connection_class", Connection)
            self.connect_timeout = float(options.pop("socket_connect_timeout", _TIMEOUT))
            self.timeout = float(options.pop("socket_timeout", _TIMEOUT))
            self.user = str(options.get("username", "default"))
            self._options = Secret(options | self._fixed_options())
            self.connection()
        except (ValueError, TypeError) as error:
            # The driver's own text is no longer shown: it may quote the URL, password and all.
            msg = (
                f"{self.text!r} is not a Redis URL that can work ({type(error).__name__}). Use "
                "redis://user:password@host:6379/0, rediss:// for TLS, or redis:///path/to/socket, "
                "with options of a redis-py connection after '?'."
            )
            raise ConfigError(msg) from None

    def fault(self, error: Exception) -> StoreError:
        """Return Tenure's error for the driver's; raise it `from` that one."""
        return translate(error, self.text, self.user, moves=self.moves)

    def connection(self) -> Connection:
        """Return a new connection, not connected yet. Raises for options that it does not know."""
        return self._make(**self._options())

    async def reach(self) -> Connection:
        """Return a connection that is logged in. What fails leaves nothing open."""
        connection = self.connection()
        try:
            await connection.connect()  # type: ignore[no-untyped-call]  # redis-py leaves it untyped
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    async def census(self) -> Finding | None:
        """Tell who else is there besides the primary; nothing is known of that here."""
        return None

    def opened(self, wire: Wire) -> None:
        """Hear of a wire over what `reach` has returned last."""

    def _fixed_options(self) -> dict[str, Any]:
        return {
            "socket_connect_timeout": self.connect_timeout,
            "socket_timeout": self.timeout,
            # The driver would send a command again, up to ten times, without telling anybody.
            "retry": Retry(NoBackoff(), 0),
            "retry_on_timeout": False,
            # Replies are read by this store. RESP 2 needs one round trip less to log in, and the
            # scripts' replies are the same bytes in both versions.
            "protocol": 2,
            "decode_responses": False,
            **_ANONYMOUS,
        }


async def dial(address: Address, received: Received, lost: Lost) -> Wire:
    """Connect and log in, in bounded time. Raises redis-py's exceptions."""
    try:
        async with asyncio.timeout(address.connect_timeout):
            connection = await address.reach()
    except TimeoutError as error:
        msg = f"no connection within {address.connect_timeout:g} s"
        raise exceptions.TimeoutError(msg) from error
    except exceptions.RedisError:
        raise
    except Exception as error:
        raise exceptions.ConnectionError(str(error)) from error
    # The one place that reaches into redis-py: it has no public way to hand over its stream.
    stream, connection._writer = connection._writer, None  # noqa: SLF001
    connection._reader = None  # noqa: SLF001
    await connection.disconnect(nowait=True)
    if stream is None or stream.is_closing():
        raise exceptions.ConnectionError("closed by the server during log-in")
    wire = Wire(stream, received, lost)
    address.opened(wire)
    return wire


def _for_driver(parts: SplitResult) -> str:
    """Return the URL in the form that redis-py reads."""
    scheme = _SCHEMES[parts.scheme]
    database = parts.path.strip("/")
    if database and not database.isdecimal():
        # With a host this is a mistake, which redis-py would take for database 0.
        if parts.hostname or parts.port or scheme == "rediss":
            raise ValueError(database)
        scheme = "unix"
    return urlunsplit(parts._replace(scheme=scheme))
