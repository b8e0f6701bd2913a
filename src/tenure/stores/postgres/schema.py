"""The format of the schema `tenure`: creating it, bringing it up to date, or only looking."""

from __future__ import annotations

from importlib.resources import files

import asyncpg

from tenure.errors import ConfigError
from tenure.stores.contract import Migrate

__all__ = ["FORMAT", "READ_INCARNATION", "found_format", "migrate"]

# From one format to the next: the scripts in sql/ that make it. A migration only adds, or replaces
# what does the same for all that the release before it knows, because that release works on during
# a deployment.
_SCRIPTS = {
    1: ("1_tables.sql", "1_leases.sql", "1_leases_kept.sql"),
    2: (
        "2_tables.sql",
        "2_jobs.sql",
        "2_settle.sql",
        "2_replicas.sql",
        "2_operators.sql",
        "2_rights.sql",
    ),
    3: (
        "3_tables.sql",
        "3_jobs.sql",
        "3_runs.sql",
        "3_schedules.sql",
        "3_rights.sql",
    ),
}
FORMAT = max(_SCRIPTS)

# One creator at a time. The number means nothing; it is "tenure" in ASCII.
_LOCK = "SELECT pg_advisory_xact_lock(127978993709669)"
# Creators queue up for the lock, longer than a single call may take.
_PATIENCE = "SET LOCAL statement_timeout = 60000"
_PATIENCE_SECONDS = 60.0

# The catalogs are asked as tables. to_regclass() would answer from a cache of this session, which
# may not yet know what was created while we waited for the lock.
_PRESENT = """
SELECT EXISTS (
    SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'tenure' AND c.relname = 'format')
"""
_NUMBER = "SELECT max(number) FROM tenure.format"
# IF NOT EXISTS alone would ask for the right to create even where there is nothing to create.
_SCHEMA_MISSING = "SELECT NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'tenure')"
_CREATE_SCHEMA = "CREATE SCHEMA IF NOT EXISTS tenure"
_CREATE_FORMAT = """
CREATE TABLE IF NOT EXISTS tenure.format (
    number      integer PRIMARY KEY,
    incarnation uuid    NOT NULL DEFAULT gen_random_uuid())
"""
# That of the first format which was made here. Later ones add rows.
READ_INCARNATION = "SELECT incarnation FROM tenure.format ORDER BY number LIMIT 1"
_RECORD = "INSERT INTO tenure.format (number) VALUES ($1)"


async def migrate(connection: asyncpg.Connection, how: Migrate, url: str) -> None:
    """Bring the format up to date, or with "check" raise ConfigError if it is not."""
    if how == "skip":
        return
    found = await found_format(connection, url)
    if found == FORMAT:
        return
    if how == "check":
        state = f"has format {found}" if found else "has not been set up"
        msg = (
            f"the store {url} {state}, and format {FORMAT} is needed. Run 'tenure migrate', or "
            'open it once with migrate="auto", under a role that may create tables.'
        )
        raise ConfigError(msg)
    async with connection.transaction():
        await connection.execute(_PATIENCE)
        await connection.execute(_LOCK, timeout=_PATIENCE_SECONDS)
        # Again, because somebody else may have done it while we waited for the lock.
        for number in range(await found_format(connection, url) + 1, FORMAT + 1):
            await _upgrade(connection, number)


async def found_format(connection: asyncpg.Connection, url: str) -> int:
    """Return the number of the format, 0 if there is none; raise ConfigError if it is newer."""
    if not await connection.fetchval(_PRESENT):
        return 0
    found: int = await connection.fetchval(_NUMBER) or 0
    if found > FORMAT:
        msg = (
            f"the store {url} has format {found}, made by a newer release; this one knows "
            f"{FORMAT}. Upgrade tenure here."
        )
        raise ConfigError(msg)
    return found


async def _upgrade(connection: asyncpg.Connection, number: int) -> None:
    if await connection.fetchval(_SCHEMA_MISSING):
        await connection.execute(_CREATE_SCHEMA)
    await connection.execute(_CREATE_FORMAT)
    for script in _SCRIPTS[number]:
        text = files(__package__).joinpath("sql", script).read_text(encoding="utf-8")
        await connection.execute(text, timeout=_PATIENCE_SECONDS)
    await connection.execute(_RECORD, number)
