"""Reads the facts of a PostgreSQL server and of a pooler in front of it, and judges them."""

from __future__ import annotations

from typing import Any

import asyncpg
from msgspec import Struct

from tenure.core.leases import Grade
from tenure.errors import ConfigError, StoreUnavailable

__all__ = ["CONNECTIONS_LEAST", "OLDEST", "POOLER_ADVICE", "Server", "shares_sessions"]

# The oldest release that was supported when this was written.
OLDEST = 13

CONNECTIONS_LEAST = 3
"""The connections of a process: for calls, for wake-ups, and for renewals and beats."""

POOLER_ADVICE = (
    "It is in transaction mode, which breaks prepared statements and wake-ups. Add "
    "statement_cache_size=0 to the URL, or connect to the server directly."
)

# Limits of connections do not hold for superusers. The number of sessions is that of clients.
#
# Facts of a standby that a role without pg_monitor cannot see are NULL. Subscribers of a logical
# slot are no standbys, and neither is a base backup.
_FACTS = """
SELECT current_setting('server_version') AS version,
       (SELECT d.datname || '/' || d.oid FROM pg_database d WHERE d.datname = current_database())
           AS place,
       current_setting('server_version_num')::integer / 10000 AS release,
       current_setting('server_encoding') AS encoding,
       current_setting('transaction_read_only') = 'on' AS read_only,
       current_setting('transaction_isolation') AS isolation,
       pg_is_in_recovery() AS standby,
       current_setting('fsync') = 'on' AS flushes,
       current_setting('synchronous_commit') AS waits_for,
       (
           SELECT count(*) FROM pg_stat_replication r
           WHERE coalesce(r.state, '') <> 'backup'
             AND NOT EXISTS (
                 SELECT FROM pg_replication_slots s
                 WHERE s.active_pid = r.pid AND s.slot_type = 'logical')
             AND (r.sync_state NOT IN ('sync', 'quorum')
                  OR current_setting('synchronous_standby_names') = ''
                  OR current_setting('synchronous_commit') IN ('local', 'off'))
       ) AS lagging_standbys,
       pg_backend_pid() AS pid,
       room.number AS connections_left,
       room.name AS connections_limit
FROM (
    SELECT tightest.number, tightest.name
    FROM pg_roles r
    JOIN pg_database d ON d.datname = current_database()
    CROSS JOIN LATERAL (
        SELECT count(*) AS all_sessions, count(*) FILTER (WHERE a.usesysid = r.oid) AS of_role,
               count(*) FILTER (WHERE a.datid = d.oid) AS of_database
        FROM pg_stat_activity a WHERE a.backend_type = 'client backend'
    ) AS used
    CROSS JOIN LATERAL (
        SELECT limits.number - limits.used AS number, limits.name
        FROM (VALUES
            (current_setting('max_connections')::bigint
                 - current_setting('superuser_reserved_connections')::bigint,
             used.all_sessions, 'max_connections of the server'),
            (CASE WHEN r.rolconnlimit >= 0 AND NOT r.rolsuper THEN r.rolconnlimit END,
             used.of_role, 'the CONNECTION LIMIT of the role'),
            (CASE WHEN d.datconnlimit >= 0 AND NOT r.rolsuper THEN d.datconnlimit END,
             used.of_database, 'the CONNECTION LIMIT of the database')
        ) AS limits ("number", used, name)
        WHERE limits.number IS NOT NULL ORDER BY 1 LIMIT 1
    ) AS tightest
    WHERE r.rolname = current_user
) AS room
"""


class Server(Struct, frozen=True):
    """The facts that decide whether a server can hold leases, and how safely."""

    version: str
    release: int
    encoding: str
    read_only: bool
    isolation: str
    standby: bool
    flushes: bool
    waits_for: str
    """The value of synchronous_commit."""
    lagging_standbys: int
    """Standbys for which a commit does not wait."""
    place: str = ""
    """The name and number of the database."""
    pid: int = 0
    """The process of the server that answered."""
    connections_left: int = 1000
    """How many more connections this role may open now."""
    connections_limit: str = ""
    """The setting that limits them."""

    @classmethod
    async def ask(cls, connection: asyncpg.Connection) -> Server:
        """Read the facts over `connection`."""
        facts: dict[str, Any] = dict(await connection.fetchrow(_FACTS))
        return cls(**facts)

    @property
    def grade(self) -> Grade:
        """The failures that an acknowledged commit survives on this server.

        Without fsync a power loss may make the whole database unreadable, not only lose its last
        second. So it counts as volatile, although it survives a crash of the server's processes.
        """
        if not self.flushes:
            return Grade.D
        if self.lagging_standbys:
            return Grade.C
        # A crash of the server loses the last acknowledged commits, as a fail-over would.
        return Grade.C if self.waits_for == "off" else Grade.A

    def check(self, url: str) -> None:
        """Raise if this server cannot hold leases."""
        if self.standby:
            msg = (
                f"the store {url} is a read-only standby. Name the primary, or all hosts as in "
                "postgresql://host1,host2/database: the one that takes writes is used then."
            )
            raise StoreUnavailable(msg)
        if self.release < OLDEST:
            msg = f"the store {url} is PostgreSQL {self.version}; {OLDEST} or later is needed."
            raise ConfigError(msg)
        if self.encoding != "UTF8":
            msg = f"the store {url} has the encoding {self.encoding}. Create a database with UTF8."
            raise ConfigError(msg)
        if self.read_only:
            msg = (
                f"the store {url} takes no writes: default_transaction_read_only is on. Turn it "
                "off for this role and database, or use others."
            )
            raise ConfigError(msg)
        if self.isolation != "read committed":
            msg = (
                f"the store {url} runs transactions as '{self.isolation}'. Set "
                "default_transaction_isolation to 'read committed' for this role."
            )
            raise ConfigError(msg)


async def shares_sessions(first: asyncpg.Connection, other: asyncpg.Connection) -> bool:
    """Return whether calls on these connections share sessions of the server.

    They do if two connections get the same server process, or if one gets two. Each is asked twice,
    because a pooler with two free sessions may assign them in turns.
    """
    connections = (first, other, first, first)
    pids = [await connection.fetchval("SELECT pg_backend_pid()") for connection in connections]
    return pids[0] == pids[1] or len({pids[0], *pids[2:]}) > 1
