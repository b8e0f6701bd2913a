"""Jobs in transactions of synchronous code."""

import asyncio
import sqlite3

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from tenure import ConfigError, JobNotFound, Tenure, blocking
from tests.jobs.transactions.kinds import POSTGRES, declare_double
from tests.jobs.transactions.own_connections import path_of


@pytest.mark.parametrize("kind", ["sqlite3", "psycopg"], indirect=True)
def test_a_thread_can_enqueue_within_its_transaction(kind, url, namespace):
    described = Tenure(url, namespace=namespace)
    double = declare_double(described)
    with blocking.Tenure(described) as app:
        # Both begin a transaction implicitly.
        db = sqlite3.connect(path_of(url)) if kind == "sqlite3" else psycopg.connect(url)
        job = app.enqueue(double.request(1), within=db)
        db.rollback()
        with pytest.raises(JobNotFound):
            job.refresh()
        jobs = app.enqueue_many([double.request(n) for n in range(3)], within=db)
        assert app.queues() == []
        db.commit()
        db.close()
        assert [job.refresh().state for job in jobs] == ["waiting"] * 3


@pytest.mark.parametrize("kind", ["sqlite3", "psycopg"], indirect=True)
def test_a_thread_can_enqueue_within_a_sqlalchemy_session(kind, url, namespace):
    described = Tenure(url, namespace=namespace)
    double = declare_double(described)
    scheme, _, rest = url.partition("://")
    driver = "pysqlite" if kind == "sqlite3" else "psycopg"
    engine = sqlalchemy.create_engine(f"{scheme}+{driver}://{rest}", poolclass=NullPool)
    with blocking.Tenure(described) as app:
        for end, count in (("rollback", 0), ("commit", 1)):
            with Session(engine) as session:
                app.enqueue(double.request(1), within=session)
                getattr(session, end)()
            assert len(app.jobs()) == count


@POSTGRES
def test_an_asynchronous_connection_in_a_thread_is_refused(url, namespace):
    described = Tenure(url, namespace=namespace)
    double = declare_double(described)

    async def attempt(app: blocking.Tenure) -> None:
        connection = await asyncpg.connect(url)
        with pytest.raises(ConfigError, match="synchronous"):
            app.enqueue(double.request(1), within=connection)
        await connection.close()

    with blocking.Tenure(described) as app:
        asyncio.run(attempt(app))
