"""Turns a URL into redis-py connections: the server, the log-in, TLS and time-outs."""

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

# Keeps the driver from sending CLIENT SETINFO on each connect. A user with the least rights may not
# run it, and Redis 6.2 has no such right to grant, so each connect would leave lines in ACL LOG.
_ANONYMOUS: dict[str, None] = (
    {"driver_info": None}
    if "driver_info" in signature(AbstractConnection).parameters
    else {"lib_name": None, "lib_version": None}  # older versions of redis-py
)

# Long enough for a server that forks or loads, short enough to notice before a lease of 30 s ends.
_TIMEOUT = 5.0


class Address:
    """The server that a URL names. redis-py parses it, with its options for TLS and log-in.

    In addition to redis-py's forms, `redis:///path/to/redis.sock` names a Unix socket.
    """

    moves = False
    """Whether the next connect may lead to another server; see topology.py."""

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
            # Without the driver's text, which may quote the URL with its password.
            msg = (
                f"{self.text!r} is not a Redis URL that can work ({type(error).__name__}). Use "
                "redis://user:password@host:6379/0, rediss:// for TLS, or redis:///path/to/socket, "
                "with options of a redis-py connection after '?'."
            )
            raise ConfigError(msg) from None

    def fault(self, error: Exception) -> StoreError:
        """Return Tenure's error for an error of the driver, to raise from that."""
        return translate(error, self.text, self.user, moves=self.moves)

    def connection(self) -> Connection:
        """Return a new connection, not connected yet. Raises for unknown options."""
        return self._make(**self._options())

    async def reach(self) -> Connection:
        """Return a connection that is logged in. A failure leaves nothing open."""
        connection = self.connection()
        try:
            await connection.connect()  # type: ignore[no-untyped-call]  # redis-py leaves it untyped
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    async def census(self) -> Finding | None:
        """Return findings about replicas and fail-over. A plain URL knows nothing of them."""
        return None

    def opened(self, wire: Wire) -> None:
        """Record the wire over the connection that `reach` has returned last."""

    def _fixed_options(self) -> dict[str, Any]:
        return {
            "socket_connect_timeout": self.connect_timeout,
            "socket_timeout": self.timeout,
            # Otherwise the driver would silently repeat a command up to ten times.
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
    # Uses private attributes of redis-py, which has no public way to hand over its stream.
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
        # With a host this is a mistake, but redis-py would use database 0.
        if parts.hostname or parts.port or scheme == "rediss":
            raise ValueError(database)
        scheme = "unix"
    return urlunsplit(parts._replace(scheme=scheme))
