"""The format of the schema `tenure`: checks its version, and creates its tables and functions."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

import asyncpg

from tenure.errors import ConfigError
from tenure.stores.contract import Migrate

__all__ = ["FORMAT", "check_format", "migrate"]

FORMAT: Final = 1
"""The version of the format that the scripts create."""
READABLE_FROM: Final = 1
"""The oldest version whose code can still use it."""
_SCRIPTS: Final = (
    *("tables", "leases", "holds", "jobs", "claims", "settlements", "replicas", "orphans"),
    *("operators", "lists", "runs", "schedules", "settings"),
)

# An advisory lock: one creator at a time. The number is "tenure" in ASCII.
_LOCK = "SELECT pg_advisory_xact_lock(127978993709669)"
# Creators queue up for the lock, longer than a single call may take.
_PATIENCE = "SET LOCAL statement_timeout = 60000"
_PATIENCE_SECONDS = 60.0

# Reads the catalogs as tables. to_regclass() answers from a cache of this session, which may lack
# what was created while this waited for the lock.
_PRESENT = """
SELECT EXISTS (
    SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'tenure' AND c.relname = 'format')
"""
_STORED = "SELECT f.number, f.readable_from FROM tenure.format f ORDER BY f.number DESC LIMIT 1"
# IF NOT EXISTS alone would need the right to create even if the schema exists.
_SCHEMA_MISSING = "SELECT NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'tenure')"
_CREATE_SCHEMA = "CREATE SCHEMA IF NOT EXISTS tenure"
_RECORD = "INSERT INTO tenure.format (number, readable_from) VALUES ($1, $2)"


async def migrate(connection: asyncpg.Connection, how: Migrate, url: str) -> None:
    """Bring the format up to date. With "check", raise ConfigError if it is not."""
    if how == "skip" or await _is_there(connection, url):
        return
    if how == "check":
        msg = (
            f"the store {url} has not been set up, and format {FORMAT} is needed. Run 'tenure "
            'migrate\', or open it once with migrate="auto", under a role that may create tables.'
        )
        raise ConfigError(msg)
    async with connection.transaction():
        await connection.execute(_PATIENCE)
        await connection.execute(_LOCK, timeout=_PATIENCE_SECONDS)
        # Again, because another process may have done it while this waited for the lock.
        if not await _is_there(connection, url):
            await _create(connection)


async def _is_there(connection: asyncpg.Connection, url: str) -> bool:
    """Return whether there is a format. Raises ConfigError if it is too new."""
    if not await connection.fetchval(_PRESENT):
        return False
    stored = await connection.fetchrow(_STORED)
    if stored is not None:
        check_format(stored["number"], stored["readable_from"], url)
    return stored is not None


def check_format(number: int, readable_from: int, url: str) -> None:
    """Raise ConfigError if this release cannot work with a format."""
    if readable_from > FORMAT:
        msg = (
            f"the store {url} has format {number}, made by a newer release; this one knows "
            f"{FORMAT}. Upgrade tenure here."
        )
        raise ConfigError(msg)


async def _create(connection: asyncpg.Connection) -> None:
    if await connection.fetchval(_SCHEMA_MISSING):
        await connection.execute(_CREATE_SCHEMA)
    for script in _SCRIPTS:
        text = files(__package__).joinpath("sql", f"{script}.sql").read_text(encoding="utf-8")
        await connection.execute(text, timeout=_PATIENCE_SECONDS)
    await connection.execute(_RECORD, FORMAT, READABLE_FROM)
