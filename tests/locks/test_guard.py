"""`guard`: a lease that protects the user's own transaction on the same database."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import asyncpg
import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

from tenure import ConfigError, LeaseLost, Tenure, blocking

TTL = 1.0


class Account:
    """A table of the user's, written to by guarded transactions on one kind of connection."""

    def __init__(self, kind: str, connection, execute: Callable[..., Awaitable[object]]) -> None:
        self.kind = kind
        self.connection = connection
        self._execute = execute

    async def run(self, statement: str) -> None:
        await self._execute(statement)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        await self.run("BEGIN")  # on SQLite it takes no lock yet: that is the guard's business
        try:
            yield
        except BaseException:
            await self.run("ROLLBACK")
            raise
        await self.run("COMMIT")


async def connect(kind: str, url: str, stack: AsyncExitStack) -> Account:
    if kind == "sqlite3":
        db = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        stack.callback(db.close)

        async def run(statement: str) -> None:
            db.execute(statement)

        return Account(kind, db, run)
    if kind == "asyncpg":
        connection = await asyncpg.connect(url)
        stack.push_async_callback(connection.close)
        return Account(kind, connection, connection.execute)
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    stack.push_async_callback(connection.close)
    return Account(kind, connection, connection.execute)


@pytest.fixture(params=["sqlite3", "asyncpg", "psycopg"])
def kind(request) -> str:
    """The driver behind the user's own connection."""
    return request.param


@pytest.fixture
def url(kind, tmp_path, request) -> str:
    """A database that has room for the user's tables and for ours."""
    if kind == "sqlite3":
        return f"sqlite:///{tmp_path / 'tenure.db'}"
    return request.getfixturevalue("postgres_server").url


@pytest.fixture
async def app(url, namespace) -> AsyncIterator[Tenure]:
    async with Tenure(url, namespace=namespace) as app:
        yield app


@pytest.fixture
async def rival(app, url, namespace) -> AsyncIterator[Tenure]:
    async with Tenure(url, namespace=namespace) as rival:
        yield rival


@pytest.fixture
async def account(kind, url, app, namespace) -> AsyncIterator[Account]:
    async with AsyncExitStack() as stack:
        account = await connect(kind, url, stack)
        account.table = f"account_{namespace}"
        await account.run(f"CREATE TABLE {account.table} (amount INTEGER)")
        yield account
        await account.run(f"DROP TABLE {account.table}")


async def add(account: Account, amount: int) -> None:
    await account.run(f"INSERT INTO {account.table} VALUES ({amount})")


async def forget(hold) -> None:
    """Stop renewing, as a paused process does."""
    hold._holds.drop(hold._kept)


async def test_a_holder_writes_under_its_lease(app, account):
    async with app.lock("x") as hold, account.transaction():
        await hold.guard(account.connection)
        await add(account, 1)


async def test_a_stale_holder_is_refused(app, rival, account):
    hold = await app.lock("x", ttl=TTL).acquire()
    await forget(hold)
    successor = await rival.lock("x", ttl=TTL).acquire()  # waits for the lease to run out
    hold._kept.deadline += 3600  # a holder whose clock stood still does not know it
    async with successor, account.transaction():
        await successor.guard(account.connection)
        await add(account, 2)
    with pytest.raises(LeaseLost):
        async with account.transaction():
            await add(account, 1)
            await hold.guard(account.connection)
    assert hold.is_lost
    await hold.release()


async def test_a_take_over_waits_for_the_guarded_commit(app, rival, account):
    hold = await app.lock("x", ttl=TTL).acquire()
    loop = asyncio.get_running_loop()
    async with account.transaction():
        await hold.guard(account.connection)
        await forget(hold)
        taking = asyncio.ensure_future(rival.lock("x", ttl=TTL, wait=30).acquire())
        done, _ = await asyncio.wait([taking], timeout=2 * TTL)
        assert not done
        await add(account, 1)
        committed = loop.time()
    successor = await taking
    assert loop.time() >= committed
    assert successor.fence > hold.fence
    await successor.release()
    await hold.release()


async def test_renewals_go_on_during_a_guarded_transaction(app, kind, account):
    async with app.lock("x", ttl=TTL) as hold, account.transaction():
        await hold.guard(account.connection)
        if kind != "sqlite3":  # there they wait for the commit
            await asyncio.sleep(2 * TTL)
            assert hold.is_held
        await add(account, 1)


async def test_a_guard_outside_a_transaction_is_refused(app, account):
    async with app.lock("x") as hold:
        with pytest.raises(ConfigError, match="none is open"):
            await hold.guard(account.connection)


async def test_a_strange_connection_is_refused(app):
    async with app.lock("x") as hold:
        with pytest.raises(ConfigError, match="cannot use"):
            await hold.guard(object())


@pytest.mark.parametrize("store", ["memory://", "redis"])
async def test_a_store_without_transactions_says_so(store, namespace, request):
    url = request.getfixturevalue("valkey_server").url if store == "redis" else store
    async with Tenure(url, namespace=namespace) as app, app.lock("x") as hold:
        with pytest.raises(ConfigError, match="no transactions"):
            await hold.guard(object())


def test_another_sqlite_file_is_refused(tmp_path: Path):
    db = sqlite3.connect(tmp_path / "other.db", isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    app = blocking.Tenure(f"sqlite:///{tmp_path / 'tenure.db'}")
    with app, app.lock("x") as hold, pytest.raises(ConfigError, match="database of the store"):
        hold.guard(db)
    db.close()


async def be_refused(hold: blocking.Hold, url: str) -> None:
    connection = await asyncpg.connect(url)
    with pytest.raises(ConfigError, match="synchronous"):
        hold.guard(connection)
    await connection.close()


def test_from_a_thread(kind, url, namespace):
    with blocking.Tenure(url, namespace=namespace) as app, app.lock("x") as hold:
        if kind == "asyncpg":
            asyncio.run(be_refused(hold, url))
            return
        if kind == "sqlite3":
            db = sqlite3.connect(url.removeprefix("sqlite:///"))
        else:
            db = psycopg.connect(url)
        hold.guard(db)  # both begin a transaction by themselves
        db.commit()
        db.close()


async def test_a_session_of_sqlalchemy(postgres_server, namespace):
    url = postgres_server.url
    engine = create_async_engine(url.replace("://", "+asyncpg://"), poolclass=NullPool)
    async with Tenure(url, namespace=namespace) as app:
        hold = await app.lock("x").acquire()
        async with AsyncSession(engine) as session, session.begin():
            await hold.guard(session)
        await hold.release()
        async with AsyncSession(engine) as session, session.begin():
            with pytest.raises(LeaseLost):
                await hold.guard(session)


async def test_a_released_hold_guards_nothing(app, account):
    hold = await app.lock("x").acquire()
    await hold.release()
    async with account.transaction():
        with pytest.raises(LeaseLost):
            await hold.guard(account.connection)
