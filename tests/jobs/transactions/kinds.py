"""Which kinds of connections a test is for, and what jobs do in them."""

import pytest

from tenure import Backoff, Tenure
from tests.jobs.transactions.own_connections import Own, values

# What differs between drivers is tried on all of them; the rest on one for each database.
ONE_OF_EACH = pytest.mark.parametrize("kind", ["sqlite3", "asyncpg"], indirect=True)
ONE_OF_EACH_DRIVER = pytest.mark.parametrize(
    "kind",
    ["sqlite3", "sqlalchemy-aiosqlite-session", "asyncpg", "psycopg", "sqlalchemy-asyncpg-session"],
    indirect=True,
)
POSTGRES = pytest.mark.parametrize("kind", ["asyncpg"], indirect=True)
AT_ONCE = Backoff(max_attempts=3, base=0.001, cap=0.001)


class Undo(Exception):
    """Raised to roll back."""


async def effects(own: Own) -> list[int]:
    return await values(own.url, own.table)


def declare_double(app: Tenure):
    @app.task
    async def double(number: int) -> int:
        return 2 * number

    return double
