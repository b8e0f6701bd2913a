"""Opening a PostgreSQL store detects poolers that share sessions, and too few connections."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from importlib.resources import files

import pytest

from tenure import ConfigError, Tenure
from tenure.stores.postgres.address import Address, connections_most
from tenure.stores.postgres.server import shares_sessions
from tests.rig.fixtures import Endpoint
from tests.rig.pooler import Pooler
from tests.stores.postgres.inside import connected, opening


async def test_a_pooler_in_transaction_mode_is_refused_unless_the_url_mentions_it(
    postgres_server: Endpoint, namespace: str
):
    async with Tenure(postgres_server.url, namespace=namespace):
        pass  # makes the format
    with Pooler(postgres_server.url) as pooler:
        with pytest.raises(ConfigError, match="Add statement_cache_size=0 to the URL"):
            await Tenure(pooler.url, namespace=namespace).open()
        url = f"{pooler.url}?statement_cache_size=0"
        async with Tenure(url, namespace=namespace) as app, app.lock("a") as hold:
            assert hold.is_held


class Line:
    """A connection that meets these processes of the server, one after the other."""

    def __init__(self, *pids: int) -> None:
        self.pids = list(pids)

    async def fetchval(self, _statement: str) -> int:
        return self.pids.pop(0)


@pytest.mark.parametrize(
    ("first", "other", "expected"),
    [
        ((1, 1, 1), (2,), False),
        ((1, 1, 1), (1,), True),  # the session that was used last
        ((1, 1, 2), (2,), True),  # two sessions in turns
        ((1, 3, 1), (2,), True),
        ((1, 3, 3), (2,), True),
    ],
)
async def test_sessions_are_shared_if_processes_of_the_server_change(first, other, expected):
    assert await shares_sessions(Line(*first), Line(*other)) is expected


@pytest.fixture
async def limited_role(postgres_server: Endpoint, namespace: str) -> AsyncIterator[str]:
    """The url of a role that may have two connections."""
    async with connected(postgres_server.url) as operator, Tenure(postgres_server.url):
        await operator.execute(f'CREATE ROLE "{namespace}" LOGIN CONNECTION LIMIT 2')
        await operator.execute(f'GRANT tenure_app TO "{namespace}"')
        try:
            yield postgres_server.url.replace("tenure@", f"{namespace}@")
        finally:
            await operator.execute(f'DROP OWNED BY "{namespace}"')
            await operator.execute(f'DROP ROLE "{namespace}"')


async def test_too_few_connections_are_told_when_a_store_is_opened(
    limited_role: str, namespace: str, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING, "tenure"):
        async with Tenure(limited_role, namespace=namespace):
            pass
    [record] = caplog.records
    assert "has 1 more connections for this process" in record.getMessage()
    assert "needs 3 in all" in record.getMessage()
    assert "Raise the CONNECTION LIMIT of the role." in record.getMessage()


async def test_enough_connections_are_not_worth_a_word(
    postgres_server: Endpoint, namespace: str, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING, "tenure"):
        async with Tenure(postgres_server.url, namespace=namespace):
            pass
    assert caplog.records == []


# The size of the pool.


def test_the_size_of_the_pool_is_a_parameter_of_the_url():
    assert Address.parse("postgresql://h/d").pool_size == 8
    address = Address.parse("postgresql://h/d?pool_size=3&sslmode=require")
    assert address.pool_size == 3
    assert "pool_size" not in address.options()["dsn"]
    assert connections_most(3) == 8


@pytest.mark.parametrize("text", ["0", "101", "-1", "many", "", "1e1", "9" * 5000])
def test_a_size_of_the_pool_that_cannot_work_is_refused(text: str):
    with pytest.raises(ConfigError, match="pool_size must be a whole number from 1 to 100"):
        Address.parse(f"postgresql://h/d?pool_size={text}")


async def test_a_store_object_opens_no_more_connections_than_its_pool_may_have(
    postgres_server: Endpoint, namespace: str
):
    async with opening(namespace) as open_store:
        store = await open_store(f"{postgres_server.url}?pool_size=2")
        await asyncio.gather(*(store.jobs.counts() for _ in range(20)))
        assert store._pool is not None
        assert len(store._pool._idle) == 2
        assert store.clone()._address.pool_size == 2


async def test_every_function_that_is_called_sets_what_its_plans_need(postgres_server: Endpoint):
    sources = [path for path in files("tenure.stores.postgres").iterdir() if path.is_file()]
    python = "\n".join(path.read_text() for path in sources if path.name.endswith(".py"))
    called = set(re.findall(r"tenure\.([a-z_]+)\(", python))
    async with connected(postgres_server.url) as operator:
        rows = await operator.fetch(
            "SELECT proname, proconfig FROM pg_proc WHERE pronamespace = 'tenure'::regnamespace"
        )
    assert called <= {row["proname"] for row in rows}
    assert called - {"now"} == {row["proname"] for row in rows if row["proconfig"]}
