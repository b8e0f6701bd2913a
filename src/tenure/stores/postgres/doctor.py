"""Examines a PostgreSQL server: facts, and settings that would lose leases."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress

import asyncpg

from tenure.core.clock import Clock
from tenure.core.leases import Finding, Grade
from tenure.errors import TenureError
from tenure.stores.postgres.address import Address, connections_most
from tenure.stores.postgres.errors import translate
from tenure.stores.postgres.pool import Row
from tenure.stores.postgres.rights import grants, missing
from tenure.stores.postgres.schema import FORMAT
from tenure.stores.postgres.server import (
    CONNECTIONS_LEAST,
    OLDEST,
    POOLER_ADVICE,
    Server,
    shares_sessions,
)
from tenure.stores.postgres.snapshots import snapshot_finding

__all__ = ["Doctor"]

# A notification within one server takes a millisecond or two.
_WAKE_UP_SECONDS = 2.0
_NEARLY_FULL = 0.8
_FEWER = (
    "lower pool_size in the URLs, or put a pooler in between and add statement_cache_size=0 to "
    "the URL."
)
_MORE_CONNECTIONS = f"Raise max_connections, {_FEWER}"

_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

# Every plain role may run this. Rights on a missing schema are NULL. The sum includes background
# workers with a database, which is accurate enough.
_MORE = """
SELECT current_user AS role,
       current_database() AS database,
       current_setting('max_connections')::integer
           - current_setting('superuser_reserved_connections')::integer AS connections_most,
       (SELECT sum(numbackends)::integer FROM pg_stat_database) AS connections_used,
       (SELECT count(*) FROM pg_stat_replication) AS standbys,
       has_database_privilege(current_database(), 'CREATE') AS may_create,
       has_schema_privilege(to_regnamespace('tenure')::oid, 'USAGE') AS may_enter,
       has_schema_privilege(to_regnamespace('tenure')::oid, 'CREATE') AS may_fill
"""

_HAS_FORMAT = "SELECT to_regclass('tenure.format') IS NOT NULL"
_READ_FORMAT = "SELECT number, readable_from FROM tenure.format ORDER BY number DESC LIMIT 1"


class Doctor:
    """Examines the server behind an address, on separate connections."""

    def __init__(self, address: Address, namespace: str, clock: Clock) -> None:
        self._address = address
        self._namespace = namespace
        self._clock = clock
        self.grade: Grade | None = None
        """The grade of the server, once it was reached."""

    async def examine(self) -> list[Finding]:
        """Return the findings. Does not raise if the server does not answer."""
        findings = [Finding("ok", "store", f"{self._address.shown}, namespace {self._namespace}")]
        try:
            async with AsyncExitStack() as stack:
                await self._look(findings, stack)
        except TenureError as error:
            findings.append(_no_answer(error))
        except Exception as error:  # noqa: BLE001 - the driver may raise anything
            findings.append(_no_answer(translate(error, self._address.shown, opening=True)))
        return findings

    async def _look(self, findings: list[Finding], stack: AsyncExitStack) -> None:
        connection = await self._probe(stack)
        server, more = await Server.ask(connection), await connection.fetchrow(_MORE)
        self.grade = server.grade
        findings += [
            _version(server),
            Finding("ok", "grade", f"{server.grade.name}, {server.grade.value}"),
            Finding("ok", "scope", "any number of machines"),
            await self._clock_finding(connection),
            _role(server),
            *_replication(server, more),
            _persistence(server, more),
            *_transactions(server, more),
            _connections(server, more, self._address),
            await snapshot_finding(connection),
        ]
        if not server.standby:
            other = await self._probe(stack)
            findings += await self._pooler_findings(connection, other)
            findings.append(await self._wake_up_finding(connection, other))
        findings += await _format_findings(connection, more)

    async def _probe(self, stack: AsyncExitStack) -> asyncpg.Connection:
        """Return a connection without prepared statements, which works with every pooler."""
        options = {**self._address.options(), "statement_cache_size": 0}
        connection = await asyncpg.connect(**options)
        stack.push_async_callback(_end, connection)
        return connection

    async def _clock_finding(self, connection: asyncpg.Connection) -> Finding:
        virtual = self._clock.for_server()
        if virtual is not None:
            return Finding.of_clock((virtual - self._clock.wall()) / 1e6, 0.0)
        # The first query costs the server more.
        await connection.fetchval(_NOW)
        sent, began = self._clock.wall(), self._clock.boot()
        server = await connection.fetchval(_NOW)
        half = (self._clock.boot() - began) / 2
        return Finding.of_clock((server - sent) / 1e6 - half, half)

    async def _pooler_findings(
        self, first: asyncpg.Connection, other: asyncpg.Connection
    ) -> list[Finding]:
        """Return a finding on a pooler in front, which invents the process ids that it reports."""
        pid = await first.fetchval("SELECT pg_backend_pid()")
        if not await shares_sessions(first, other):
            if first.get_server_pid() == pid or self._address.shares_sessions:
                return []
            return [
                Finding(
                    "note",
                    "pooler",
                    "there is one in between, as far as seen with a session for each client",
                    "If it is in transaction mode, add statement_cache_size=0 to the URL.",
                )
            ]
        if self._address.shares_sessions:
            return [Finding("ok", "pooler", "in transaction mode, as the URL says")]
        return [
            Finding(
                "error",
                "pooler",
                "there is one in between that the URL does not mention",
                POOLER_ADVICE,
            )
        ]

    async def _wake_up_finding(
        self, first: asyncpg.Connection, other: asyncpg.Connection
    ) -> Finding:
        if self._address.shares_sessions:
            return Finding("ok", "wake-ups", "not pushed through a pooler; waiters look themselves")
        heard = asyncio.Event()
        channel = f"tenure_{self._clock.token()[:16]}"
        await first.add_listener(channel, lambda *_: heard.set())
        await other.execute(f"NOTIFY {channel}")
        with suppress(TimeoutError):
            async with asyncio.timeout(_WAKE_UP_SECONDS):
                await heard.wait()
        if heard.is_set():
            return Finding("ok", "wake-ups", "pushed")
        return Finding(
            "warning",
            "wake-ups",
            f"a notification did not arrive within {_WAKE_UP_SECONDS:g} s, so waiters notice late",
            "Behind a pooler in transaction mode, add statement_cache_size=0 to the URL.",
        )


async def _end(connection: asyncpg.Connection) -> None:
    with suppress(Exception):  # the session has no state, so it need not be closed in order
        await connection.close(timeout=1.0)


def _no_answer(error: TenureError) -> Finding:
    """Return why the server cannot be used, with the usual reason."""
    cause = error.__cause__
    reason = " ".join(str(cause or error).split()).rstrip(".")
    # Tenure's errors say first what happened, and then what to do.
    advice = str(error).partition(f"{reason}. ")[2]
    if isinstance(cause, asyncpg.TooManyConnectionsError):
        advice = _MORE_CONNECTIONS
    elif isinstance(cause, OSError):
        advice = "Check that the server runs, and the host and the port in the URL."
        reason = reason or "no answer in time"
    return Finding("error", "connection", reason, advice or "See the server's log.")


def _version(server: Server) -> Finding:
    version = f"PostgreSQL {server.version}"
    if server.release < OLDEST:
        return Finding(
            "error", "server", f"{version}; {OLDEST} or later is needed", "Upgrade the server."
        )
    return Finding("ok", "server", version)


def _role(server: Server) -> Finding:
    if not server.standby:
        return Finding("ok", "role", "primary")
    return Finding(
        "error",
        "role",
        "a read-only standby",
        "Name the primary, or all hosts as in postgresql://host1,host2/database: the one that "
        "takes writes is used then.",
    )


def _replication(server: Server, more: Row) -> Iterator[Finding]:
    if server.lagging_standbys:
        yield Finding(
            "note",
            "replicas",
            f"{more['standbys']} attached, {server.lagging_standbys} of them not synchronous: what "
            "was acknowledged last can be lost if one takes over",
            "Fences still grow: check them where you write. For grade A name the standbys in "
            "synchronous_standby_names.",
        )
    elif more["standbys"]:
        yield Finding("ok", "replicas", f"{more['standbys']} attached, synchronous")


def _persistence(server: Server, more: Row) -> Finding:
    if not server.flushes:
        return Finding(
            "warning",
            "persistence",
            "fsync is off: a power loss may cost the whole database",
            "Set fsync to on.",
        )
    if server.waits_for == "off":
        return Finding(
            "warning",
            "persistence",
            "synchronous_commit is off: a crash may cost the last second",
            f'ALTER ROLE "{more["role"]}" SET synchronous_commit = on, or add '
            "synchronous_commit=on to the URL.",
        )
    return Finding("ok", "persistence", f"fsync on, synchronous_commit {server.waits_for}")


def _transactions(server: Server, more: Row) -> Iterator[Finding]:
    """Yield the settings with which the store's transactions do not work."""
    if server.encoding != "UTF8":
        yield Finding(
            "error",
            "encoding",
            f"the database keeps text as {server.encoding}, which lacks characters",
            "Create a database with the encoding UTF8.",
        )
    if server.read_only and not server.standby:
        yield Finding(
            "error",
            "writing",
            "default_transaction_read_only is on",
            f'ALTER ROLE "{more["role"]}" SET default_transaction_read_only = off.',
        )
    if server.isolation != "read committed":
        yield Finding(
            "error",
            "isolation",
            f"transactions are '{server.isolation}' by default, in which waiting for a lock "
            "shows the past",
            f"ALTER ROLE \"{more['role']}\" SET default_transaction_isolation = 'read committed'.",
        )


def _connections(server: Server, more: Row, address: Address) -> Finding:
    used, most = more["connections_used"], more["connections_most"]
    needed, size = connections_most(address.pool_size), address.pool_size
    detail = f"{used} of {most} in use; a process takes up to {needed} (pool_size {size})"
    # One connection in use is this one, which is closed again.
    if server.connections_left < CONNECTIONS_LEAST - 1 and not address.shares_sessions:
        limit = server.connections_limit
        detail = f"{server.connections_left} left by {limit}; a worker needs {CONNECTIONS_LEAST}"
        return Finding("warning", "connections", detail, f"Raise {limit}, or {_FEWER}")
    if used < most * _NEARLY_FULL:
        return Finding("ok", "connections", detail)
    return Finding("warning", "connections", detail, _MORE_CONNECTIONS)


async def _format_findings(connection: asyncpg.Connection, more: Row) -> list[Finding]:
    role = more["role"]
    # In this order: without USAGE on the schema, asking for its tables fails.
    if more["may_enter"] is None or (
        more["may_enter"] and not await connection.fetchval(_HAS_FORMAT)
    ):
        return [_not_set_up(more)]
    if not more["may_enter"]:
        return [_no_rights(role, "may not use the schema 'tenure'")]
    if lacking := await missing(connection):
        rights = "; ".join(f"{what} {', '.join(tables)}" for what, tables in lacking.items())
        return [_no_rights(role, f"has not all rights in the schema 'tenure': it lacks {rights}")]
    return [
        Finding("ok", "rights", f"{role!r} may do all that leases need"),
        _format(await connection.fetchrow(_READ_FORMAT)),
    ]


def _no_rights(role: str, what: str) -> Finding:
    advice = "; ".join(grants(role)) + ";"
    return Finding("error", "rights", f"the role {role!r} {what}", advice)


def _not_set_up(more: Row) -> Finding:
    missing_schema = more["may_enter"] is None
    if more["may_create" if missing_schema else "may_fill"]:
        return Finding(
            "note",
            "format",
            f"none so far in the database {more['database']!r}",
            "Run 'tenure migrate', or let an app with migrate=\"auto\" do it.",
        )
    what = "no schema 'tenure'" if missing_schema else "nothing in the schema 'tenure'"
    return Finding(
        "error",
        "rights",
        f"there is {what}, and the role {more['role']!r} may not create it",
        "Let a role that may CREATE in the database run 'tenure migrate', then grant the rights "
        "that this command names next.",
    )


def _format(stored: Row | None) -> Finding:
    if stored is None:
        return Finding(
            "note",
            "format",
            f"none so far, {FORMAT} is needed",
            "Run 'tenure migrate', or let an app with migrate=\"auto\" do it.",
        )
    number, readable_from = stored
    if readable_from > FORMAT:
        return Finding(
            "error",
            "format",
            f"{number}, from a newer Tenure; this one knows formats up to {FORMAT}",
            "Upgrade Tenure here.",
        )
    return Finding("ok", "format", str(number))
