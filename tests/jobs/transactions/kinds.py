"""The kinds of connections that tests use, and the jobs that use them."""

import pytest

from tenure import Backoff, Tenure
from tests.jobs.transactions.own_connections import Own, values

# Tests of driver differences use all of them; other tests use one for each database.
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
