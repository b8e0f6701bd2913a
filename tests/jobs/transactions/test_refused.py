"""`task.within`: misuse raises an error."""

import sqlite3
from contextlib import AsyncExitStack

import pytest

from tenure import ConfigError, Tenure, current_job
from tests.jobs.transactions.kinds import ONE_OF_EACH, declare_double
from tests.jobs.transactions.own_connections import connect, on_postgres, path_of


@pytest.mark.parametrize("kind", ["sqlite3", "asyncpg", "psycopg"], indirect=True)
async def test_without_a_transaction_nothing_is_enqueued(app, own):
    double = declare_double(app)
    with pytest.raises(ConfigError, match="none is open"):
        await double.within(own.connection).enqueue(1)
    assert await app.queues() == []


@pytest.mark.parametrize(
    "kind",
    ["sqlalchemy-asyncpg-connection", "sqlalchemy-psycopg-session", "sqlalchemy-aiosqlite-session"],
    indirect=True,
)
async def test_a_hidden_autocommit_mode_is_refused(app, kind, url):
    double = declare_double(app)
    async with AsyncExitStack() as stack:
        own = await connect(kind, url, stack, isolation_level="AUTOCOMMIT")
        with pytest.raises(ConfigError, match="none is open"):
            async with own.transaction():
                await double.within(own.connection).enqueue(1)
    assert await app.queues() == []


@ONE_OF_EACH
async def test_an_unknown_kind_of_connection_is_refused(app):
    double = declare_double(app)
    with pytest.raises(ConfigError, match=r"within\(\) cannot use a builtins.object"):
        await double.within(object()).enqueue(1)
    with pytest.raises(ConfigError, match="not None"):
        double.within(None)


@ONE_OF_EACH
async def test_a_connection_to_another_database_is_refused(app, kind, url, namespace, tmp_path):
    double = declare_double(app)
    elsewhere = f"sqlite:///{tmp_path / 'other.db'}"
    if kind == "asyncpg":
        elsewhere = f"{url.rpartition('/')[0]}/{namespace}"
        await on_postgres(url, f'CREATE DATABASE "{namespace}"')
    try:
        for prepared in (False, True):
            if prepared:  # another service has its jobs there
                async with Tenure(elsewhere, namespace=namespace) as other:
                    assert await other.queues() == []
            async with AsyncExitStack() as stack:
                own = await connect(kind, elsewhere, stack)
                with pytest.raises(ConfigError, match="database of the store"):
                    async with own.transaction():
                        await double.within(own.connection).enqueue(1)
        async with Tenure(elsewhere, namespace=namespace) as other:
            assert await other.queues() == []
    finally:
        if kind == "asyncpg":
            await on_postgres(url, f'DROP DATABASE "{namespace}" WITH (FORCE)')


@pytest.mark.parametrize("store", ["memory://", "redis"])
async def test_a_store_without_transactions_raises_an_error_with_advice(store, namespace, request):
    url = request.getfixturevalue("valkey_server").url if store == "redis" else store
    async with Tenure(url, namespace=namespace) as app, app.worker():
        double = declare_double(app)

        @app.task(retry=None)
        async def last() -> None:
            with pytest.raises(ConfigError, match="no transactions that transaction"):
                current_job().transaction(object())

        with pytest.raises(ConfigError, match=r"no transactions that within.*after your commit"):
            await double.within(object()).enqueue(1)
        await (await last.enqueue()).result(timeout=5)


@pytest.mark.parametrize("kind", ["sqlite3"], indirect=True)
async def test_row_and_text_factories_of_the_connection_do_not_matter(app, own):
    double = declare_double(app).using(unique="k", tags=["t"])
    before = await double.enqueue(1)
    own.connection.row_factory = sqlite3.Row
    own.connection.text_factory = bytes
    async with own.transaction():
        assert (await double.within(own.connection).enqueue(1)).id == before.id
    assert own.connection.text_factory is bytes


@pytest.mark.parametrize("kind", ["sqlite3"], indirect=True)
async def test_no_other_writer_comes_between_the_reads_of_a_bound_job_and_its_commit(app, own):
    rival = sqlite3.connect(path_of(own.url), timeout=0, isolation_level=None)
    own.connection.execute("BEGIN")  # which takes no lock yet
    assert await app._store.within(own.connection, "within()").get([]) == []
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        rival.execute("BEGIN IMMEDIATE")
    own.connection.execute("ROLLBACK")
    rival.close()
