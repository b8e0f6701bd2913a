"""Lifespan and imports of a worker are complete before any job runs."""

from contextlib import asynccontextmanager

import pytest

from tenure import (
    Backoff,
)
from tests.jobs.replicas import finished

ONCE = Backoff(max_attempts=1)


async def test_lifespan_is_open_while_a_worker_runs(make, clock):
    calls = []

    @asynccontextmanager
    async def lifespan(app):
        calls.append("open")
        yield {"pool": 7}
        calls.append("closed")

    app = await make(lifespan=lifespan)

    @app.task
    async def look() -> int:
        return app.state["pool"]

    assert app.state is None
    async with app.worker():
        job = await finished(await look.enqueue(), clock)
    assert await job.result() == 7
    assert calls == ["open", "closed"]
    assert app.state is None


async def test_lifespan_is_open_until_the_last_worker_has_left(make, clock):
    calls = []

    @asynccontextmanager
    async def lifespan(app):
        calls.append("open")
        yield None
        calls.append("closed")

    app = await make(lifespan=lifespan)
    first, second = app.worker(), app.worker()
    await first.__aenter__()
    await second.__aenter__()
    await first.__aexit__(None, None, None)
    assert calls == ["open"]
    await second.__aexit__(None, None, None)
    assert calls == ["open", "closed"]


async def test_a_lifespan_that_fails_starts_no_worker(make):
    @asynccontextmanager
    async def lifespan(app):
        raise OSError("no database")
        yield

    app = await make(lifespan=lifespan)
    with pytest.raises(OSError, match="no database"):
        async with app.worker():
            pytest.fail("it must not start")
    assert await app.replicas() == []


async def test_imports_are_done_before_the_lifespan_opens(make, tmp_path, monkeypatch):
    (tmp_path / "jobs_imported_late.py").write_text("loaded = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    app = await make(imports=["jobs_imported_late"])
    async with app.worker():
        import jobs_imported_late

        assert jobs_imported_late.loaded
    nowhere = await make(imports=["jobs_nowhere"])
    with pytest.raises(ModuleNotFoundError, match="jobs_nowhere"):
        async with nowhere.worker():
            pytest.fail("it must not start")
