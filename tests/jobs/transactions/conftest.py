"""The user's own database, and connections of every kind to it."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tenure import Tenure
from tests.jobs.transactions.own_connections import KINDS, ON_POSTGRES, Own, connect


@pytest.fixture(params=KINDS)
def kind(request) -> str:
    """The kind of the user's own connection."""
    return request.param


@pytest.fixture
def url(kind, tmp_path, request) -> str:
    """A database for the user's tables and those of Tenure."""
    if kind in ON_POSTGRES:
        return request.getfixturevalue("postgres_server").url
    return f"sqlite:///{tmp_path / 'tenure.db'}"


@pytest.fixture
async def app(url, namespace) -> AsyncIterator[Tenure]:
    async with Tenure(url, namespace=namespace) as app:
        yield app


@pytest.fixture
async def own(kind, url, app, namespace) -> AsyncIterator[Own]:
    """The user's own connection to the database of the app, and a table there."""
    table = f"effect_{namespace}"
    async with AsyncExitStack() as outer:
        keeper = await connect("asyncpg" if kind in ON_POSTGRES else "sqlite3", url, outer)
        await keeper.run(f"CREATE TABLE {table} (amount INTEGER)")
        async with AsyncExitStack() as stack:
            own = await connect(kind, url, stack)
            own.table, own.url = table, url
            yield own
        await keeper.run(f"DROP TABLE {table}")
