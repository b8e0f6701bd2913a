"""The cost of idle workers: they must not write to the disk to find out that no job waits."""

from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

from tenure import Tenure
from tenure.stores.sqlite.database import Database, Mode

WORKERS = 10
JOBS = 5
NEEDED = 3  # forced commits of a job: insert, claim, settle


async def test_idle_workers_add_no_forced_commits_to_a_job(tmp_path: Path, monkeypatch):
    counts = count_commits(monkeypatch)
    async with AsyncExitStack() as stack:
        tasks = []
        for _ in range(WORKERS):
            app = await stack.enter_async_context(Tenure(f"sqlite:///{tmp_path / 'tenure.db'}"))

            @app.task(name="double")
            async def double(number: int) -> int:
                return 2 * number

            await stack.enter_async_context(app.worker(concurrency=2))
            tasks.append(double)
        counts.clear()
        for number in range(JOBS):
            job = await tasks[0].enqueue(number)
            assert await job.result(timeout=60) == 2 * number
        assert counts["claims"] > JOBS
        assert counts["forced"] <= NEEDED * JOBS


def count_commits(monkeypatch) -> Counter[str]:
    """Count claims, and commits that wrote something and waited for the disk."""
    counts: Counter[str] = Counter()
    begin, commit, fetch = Database.begin, Database.commit, Database.fetch
    begun: dict[int, tuple[Mode, int]] = {}

    def counted_begin(self: Database, mode: Mode, *, patient: bool = True) -> None:
        begin(self, mode, patient=patient)
        begun[id(self)] = (mode, self._db.total_changes)

    def counted_commit(self: Database) -> None:
        mode, changes = begun[id(self)]
        counts["forced"] += mode is Mode.DURABLE and self._db.total_changes > changes
        commit(self)

    def counted_fetch(self: Database, statement: str, values: object) -> list[tuple]:
        counts["claims"] += "FROM tenure_replica" in statement and ":queues" in statement
        return fetch(self, statement, values)

    monkeypatch.setattr(Database, "begin", counted_begin)
    monkeypatch.setattr(Database, "commit", counted_commit)
    monkeypatch.setattr(Database, "fetch", counted_fetch)
    return counts
