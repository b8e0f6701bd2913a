"""What `tenure doctor` finds about jobs, on every store."""

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tenure
from tenure.app import engine_of
from tenure.cli import target
from tenure.core.jobs.records import NewJob
from tenure.core.leases import Finding
from tenure.core.schedules import documents
from tenure.stores.connect import connect
from tenure.testing import Faults, FaultyStore
from tests.cli.conftest import Place, Run
from tests.cli.examination import examined
from tests.cli.shop import Shop, shop_at, work_without_tasks
from tests.rig.wait import wait_until, wait_until_async

SUBJECTS = (
    "workers",
    "recovery",
    "waiting",
    "tasks",
    "queues",
    "behind",
    "timers",
    "idle timers",
    "old timers",
    "paused",
)


@pytest.fixture
def shop(place: Place) -> Iterator[Shop]:
    with shop_at(place) as shop:
        yield shop


@pytest.fixture
def examine(cli: Run, place: Place):
    def examine() -> dict[str, Finding]:
        _, findings = examined(cli, *place.options)
        return {subject: finding for subject, finding in findings.items() if subject in SUBJECTS}

    return examine


def late(shop: Shop, *numbers: int, queue: str = "default") -> None:
    """Insert jobs that have been due for two minutes."""
    store, call = engine_of(shop.sync._app).store, shop.sync._portal().call
    due = call(store.ping()).now - 120_000_000
    ids = [f"01890a5d-ac96-774b-bcce-{number:012}" for number in numbers]
    call(store.jobs.insert([NewJob(id=id_, task="resize", queue=queue, at=due) for id_ in ids]))


def test_where_nothing_is_to_be_done_all_is_well(examine, shop: Shop):
    assert examine() == {
        "workers": Finding("ok", "workers", "none, and there is nothing to do"),
        "waiting": Finding("ok", "waiting", "no job"),
    }


def test_workers_and_what_waits(examine, shop: Shop):
    shop.sync.enqueue(shop.resize.request("x"))
    shop.claim()
    shop.sync.enqueue_many([shop.resize.request("x"), shop.send.using(delay=99).request(1)])
    findings = examine()
    assert findings["workers"] == Finding("ok", "workers", "1 alive, with 1 running job")
    assert re.fullmatch(r"2 jobs, the oldest due for [\d.]+ m?s", findings["waiting"].detail)
    assert len(findings) == 2


def test_jobs_without_workers(examine, shop: Shop):
    shop.sync.enqueue(shop.resize.using(delay=99).request("x"))
    findings = examine()
    assert findings["workers"].level == "warning"
    assert "tenure worker MODULE:APP" in findings["workers"].advice
    assert findings["waiting"].detail == "1 job, none is due"


def test_jobs_of_workers_that_are_gone(examine, shop: Shop):
    shop.sync.enqueue_many([shop.resize.request("x") for _ in range(3)])
    shop.claim("web-1", ttl=0.05)
    wait_until(lambda: "recovery" in examine())
    assert examine()["recovery"].level == "warning"
    assert examine()["recovery"].detail == "3 jobs of a worker that is gone"
    assert "tenure recover" in examine()["recovery"].advice
    shop.claim("web-2")
    assert examine()["recovery"].level == "note"


def told_of(finding: Finding) -> str:
    """Return its detail without the seconds that the test itself took."""
    return re.sub(r"2 min \d+ s", "2 min", finding.detail)


def test_queues_that_nobody_serves_and_those_that_are_behind(examine, shop: Shop):
    late(shop, 1, queue="reports")
    late(shop, 2)
    shop.claim()
    late(shop, 3)
    findings = examine()
    assert findings["queues"].level == "warning"
    assert told_of(findings["queues"]) == "jobs are due, and none runs: reports for 2 min"
    assert findings["behind"].level == "note"
    assert (
        told_of(findings["behind"]) == "jobs come in faster than they are done: default for 2 min"
    )
    assert told_of(findings["waiting"]) == "2 jobs, the oldest due for 2 min"


def test_tasks_that_no_worker_knows(examine, place: Place, shop: Shop):
    job = shop.sync.enqueue(shop.resize.request("x"))
    assert "tasks" not in examine()
    work_without_tasks(place, job)
    finding = examine()["tasks"]
    assert finding.level == "warning"
    assert finding.detail == "1 job waits for a worker that knows its task: resize"
    assert "Tenure(imports=[...])" in finding.advice

    more = [shop.send.request(1), shop.send.request(2)]
    work_without_tasks(place, *shop.sync.enqueue_many(more))
    assert (
        examine()["tasks"].detail == "3 jobs wait for a worker that knows their task: send, resize"
    )
    # What does not wait any more is not told.
    for job in shop.sync.jobs():
        job.cancel()
    assert "tasks" not in examine()


def test_runs_of_timers_are_no_queue_that_nobody_serves(examine, shop: Shop):
    shop.claim()
    late(shop, 1, 2, queue="@timers")
    findings = examine()
    assert (findings["timers"].level, "queues" in findings) == ("warning", False)
    assert told_of(findings["timers"]) == "2 runs of timers, due for 2 min"
    assert "wait for a worker that has their timer" in findings["timers"].advice
    # One that is just at work leaves nothing to tell.
    shop.claim("web-2", queues=["@timers"])
    assert {"timers", "queues", "behind"}.isdisjoint(examine())


class Reports:
    """An app with a timer and a schedule, or with none, and a worker that may run them."""

    def __init__(self, place: Place, *, declares: bool = True) -> None:
        self.app = app = tenure.Tenure(place.url, namespace=place.namespace)
        if not declares:
            return

        @app.timer(every="1h")
        async def sweep() -> None: ...

        @app.task
        async def report() -> None: ...

        app.schedule(report, every="1h", name="monthly")

    def work(self, look: Callable[[], dict[str, Finding]], *, timers: bool) -> dict[str, Finding]:
        """Return what is found while a worker of this app runs."""

        async def work() -> dict[str, Finding]:
            async with self.app, self.app.worker(timers=timers) as worker:
                await worker.ready()
                if timers:
                    await wait_until_async(self._are_declared)
                return await asyncio.to_thread(look)

        return asyncio.run(work())

    async def _are_declared(self) -> bool:
        return len(await self.app.timers()) == 2


def test_timers_that_no_worker_runs(examine, place: Place):
    idle = Reports(place).work(examine, timers=False)["idle timers"]
    assert idle.level == "warning"
    assert idle.detail == "no living worker runs monthly, sweep"
    assert "--no-timers" in idle.advice
    assert "--timers-only" in idle.advice


def test_timers_that_a_worker_runs_are_not_idle(examine, place: Place):
    reports = Reports(place)
    assert "idle timers" not in reports.work(examine, timers=True)
    # They were declared within the last minute: a deploy may be about to start the next worker.
    assert {"idle timers", "old timers"}.isdisjoint(reports.work(examine, timers=False))


def test_timers_that_no_process_declares_any_more(examine, place: Place, monkeypatch):
    reports = Reports(place)
    reports.work(examine, timers=True)
    monkeypatch.setattr(documents, "DECLARED_FOR", 0.0)  # as if they had left a minute ago
    findings = Reports(place, declares=False).work(examine, timers=False)
    assert findings["old timers"].level == "note"
    assert findings["old timers"].detail == "no process declares monthly, sweep"
    findings = reports.work(examine, timers=False)
    assert ("idle timers" in findings, "old timers" in findings) == (True, False)


def test_timers_without_workers(examine, place: Place):
    Reports(place).work(examine, timers=True)
    findings = examine()
    assert findings["workers"].level == "warning"
    assert findings["workers"].detail == (
        "none is alive, and these timers do not tick: monthly, sweep"
    )
    assert "old timers" not in findings


def test_a_paused_queue_is_told_and_not_blamed(examine, shop: Shop):
    shop.claim()
    late(shop, 1)
    shop.sync.pause_queue("default")
    findings = examine()
    assert findings["paused"].level == "note"
    assert findings["paused"].detail == "default until it is resumed"
    assert {"queues", "behind"}.isdisjoint(findings)


def test_no_more_than_a_few_names_are_told(examine, shop: Shop):
    for number in range(8):
        shop.sync.pause_queue(f"q{number}")
    detail = examine()["paused"].detail
    assert (detail.count("until it is resumed"), detail.endswith(", 3 others")) == (5, True)


def test_a_store_that_was_never_used_has_none(cli: Run):
    _, findings = examined(cli, "--url", "sqlite:///new.db")
    assert "workers" not in findings
    _, findings = examined(cli, "--url", "memory://")
    assert "workers" not in findings


def test_jobs_that_cannot_be_looked_at_are_told(cli: Run, file_place: Place, monkeypatch):
    faults = Faults()
    faults.lose_request("replicas")

    def connected(url: str, **how: Any) -> FaultyStore:
        return FaultyStore(connect(url, **how), faults)

    monkeypatch.setattr(target, "connect", connected)
    code, findings = examined(cli, *file_place.options)
    assert (code, findings["jobs"].level) == (0, "warning")
    assert findings["jobs"].detail.startswith("could not be read: ")
