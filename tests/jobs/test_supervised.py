"""A worker under a supervisor: how it reacts to messages of the supervisor, and to silence."""

import asyncio
import os
from collections.abc import Iterator

import pytest

from tenure import current_job
from tenure.app import engine_of
from tenure.app.options import WORKER_DEFAULTS, WorkerOptions
from tenure.app.workers import Workers
from tenure.runtime.supervised.messages import (
    BeatFailed,
    HandOver,
    IsolationJoined,
    IsolationLeft,
    IsolationOver,
    Joined,
    Order,
    RecordRenewed,
    Report,
    TakenOver,
)
from tenure.runtime.supervised.scoreboard import Scoreboard
from tests.jobs.replicas import DEFAULT_TTL, claim_and_die, lose_times
from tests.rig.endings import bury

SUSPICIOUS = 2


class Line:
    """A link in virtual time: the test is the supervisor."""

    def __init__(self, clock, board: Scoreboard) -> None:
        self.board = board
        self.is_closed = False
        self.reports: list[Report] = []
        self.repeats: Order | None = None
        """The message that the supervisor sends every half second; None: no message."""
        self._clock = clock

    def send(self, report: Report) -> None:
        self.reports.append(report)

    async def listen(self, on_order) -> None:
        self.order = on_order
        await self._clock.sleep(1e9)

    async def next_order(self, seconds: float) -> Order | None:
        until = self._clock.boot() + seconds
        while self.repeats is None and (left := until - self._clock.boot()) > 0:
            await self._clock.sleep(min(0.5, left))
        await self._clock.sleep(0.5 if self.repeats else 0)
        return self.repeats

    @property
    def replica(self) -> str:
        [*_, last] = [report.replica for report in self.reports if isinstance(report, Joined)]
        return last


@pytest.fixture
def line(clock) -> Iterator[Line]:
    file = Scoreboard.make_file(600)
    board = Scoreboard(file, 600)
    os.close(file)
    yield Line(clock, board)
    board.close()


def supervised(app, line: Line, *, grace: float = 5, resumed: HandOver | None = None):
    options: WorkerOptions = {**WORKER_DEFAULTS, "concurrency": 10, "grace": grace}
    return Workers(engine_of(app)).worker(options, link=line, resumed=resumed)


async def expires_in(store) -> float:
    [replica] = await store.jobs.replicas()
    return replica.expires_in


async def test_the_health_of_a_worker_counts_the_beats_of_its_supervisor(app, clock, line):
    async with supervised(app, line):
        await clock.advance(1)
        line.repeats = RecordRenewed(line.replica, [], held=0, revived=False)
        await clock.advance(2 * DEFAULT_TTL)
        [heartbeat] = engine_of(app).services().host.heartbeats()
        assert heartbeat.age is not None
        assert heartbeat.age <= 1


@pytest.mark.parametrize("word", [None, BeatFailed()], ids=["silence", "in doubt"])
async def test_a_worker_sends_heartbeats_if_its_supervisor_does_not(app, store, clock, line, word):
    line.repeats = word
    async with supervised(app, line):
        await clock.advance(1)
        for _ in range(20):
            await clock.advance(DEFAULT_TTL / 5)
            assert await expires_in(store) > 0


async def test_a_worker_leaves_heartbeats_to_its_supervisor(app, store, clock, line):
    async with supervised(app, line):
        await clock.advance(0)
        line.repeats = RecordRenewed(line.replica, [], held=0, revived=False)
        await clock.advance(3 * DEFAULT_TTL)
        assert await expires_in(store) < 0


async def test_a_worker_leaves_its_counts_itself_and_renews_nothing_with_them(
    make, store, clock, line, faults
):
    app = await make(faulty=True)

    @app.task
    async def work() -> None: ...

    async with supervised(app, line):
        await work.enqueue()
        await clock.advance(1)
        line.repeats = RecordRenewed(line.replica, [], held=0, revived=False)
        faults.lose_request("beat")
        await clock.advance(20)
        assert await app.run_stats() == []
        await clock.advance(20)
        [stats] = await app.run_stats()
        assert (stats.started, stats.succeeded) == (1, 1)
        assert await expires_in(store) < 0
        beats = faults.calls["beat"]
        await clock.advance(100)
        assert faults.calls["beat"] == beats


async def test_cancels_arrive_with_the_heartbeats_of_the_supervisor(app, clock, line):
    @app.task
    async def work() -> None:
        await clock.sleep(1000)

    async with supervised(app, line):
        job = await work.enqueue()
        await clock.advance(1)
        line.repeats = RecordRenewed(line.replica, [job.id], held=1, revived=False)
        await clock.advance(1)
        assert (await job.refresh()).state == "cancelled"


async def test_a_worker_joins_anew_when_its_supervisor_reports_it_taken_over(app, clock, line):
    async with supervised(app, line):
        await clock.advance(0)
        first = line.replica
        line.repeats = TakenOver(first)
        await clock.advance(1)
        assert line.replica != first


async def test_a_running_job_is_on_the_board_until_it_ends(app, clock, line):
    @app.task(timeout=7)
    async def work() -> None:
        await clock.sleep(3)

    async with supervised(app, line):
        job = await work.enqueue()
        await clock.advance(1)
        assert line.board.started() == [job.id]
        assert 5 < line.board.deadlines()[job.id] - clock.boot() < 7
        await clock.advance(3)
        assert (line.board.started(), line.board.ended) == ([], 1)


async def suspect_beside_another(app, store, clock, line, suspects: int = 1):
    """Let a busy worker claim suspicious jobs; return the first of them and the running job."""
    app.ran_here = []

    @app.task
    async def work(seconds: float) -> str:
        app.ran_here.append(current_job().id)
        await clock.sleep(seconds)
        return "done"

    app.work = work
    suspect, *_ = [await work.enqueue(0) for _ in range(suspects)]
    await lose_times(store, clock, SUSPICIOUS)
    ordinary = await work.using(priority=0).enqueue(2)
    return suspect, ordinary


def ran_here(app, job) -> bool:
    return job.id in app.ran_here


def handed_over(line: Line) -> list[HandOver]:
    return [report for report in line.reports if isinstance(report, HandOver)]


async def test_a_suspicious_job_is_handed_over_as_a_replica_of_its_own(app, store, clock, line):
    suspect, ordinary = await suspect_beside_another(app, store, clock, line)
    async with supervised(app, line):
        await clock.advance(1)
        [reports] = handed_over(line)
        assert reports.jobs == [suspect.id]
        assert IsolationJoined(reports.replica) in line.reports
        assert reports.replica != line.replica
        await suspect.refresh()
        assert (suspect.state, suspect.replica) == ("running", reports.replica)
        # The worker continues with its running jobs and with new ones.
        assert (await ordinary.refresh()).state == "running"
        more = await app.work.enqueue(0)
        await clock.advance(2)
        assert (await ordinary.refresh()).state == "succeeded"
        assert (await more.refresh()).state == "succeeded"
        assert not ran_here(app, suspect)
    # Its record stays: another process works as that replica.
    assert [report.id for report in await store.jobs.replicas()] == [reports.replica]


async def test_a_fresh_process_runs_the_job_and_nothing_else(app, store, clock, line):
    suspect, _ = await suspect_beside_another(app, store, clock, line)
    await app.pause_queue("default")
    await store.jobs.beat(["second"], ttl=1000, meta={})
    await app.resume_queue("default")
    claimed = await store.jobs.claim("second", 1, ["default"], 10)
    ordinary = await app.work.enqueue(0)
    resumed = HandOver("second", [suspect.id])
    worker = supervised(app, line, resumed=resumed)
    async with worker:
        await clock.advance(3)
        assert (await suspect.refresh()).state == "succeeded"
        assert (await ordinary.refresh()).state == "waiting"
        await asyncio.wait_for(worker.ended(), 5)
    assert len(claimed.jobs) == 2
    assert await store.jobs.replicas() == []


async def test_several_suspicious_jobs_share_a_process_one_after_the_other(app, store, clock, line):
    first, _ = await suspect_beside_another(app, store, clock, line, suspects=3)
    async with supervised(app, line):
        await clock.advance(1)
        [reports] = handed_over(line)
        assert len(reports.jobs) == 3
        # The first of them kills it. The worker claims them again before it learns of that.
        await bury(store, reports.replica, [first.id], delays=[0.0] * 10)
        await clock.advance(3)
        assert {(await app.job(id_)).state for id_ in reports.jobs} == {"waiting"}
        assert handed_over(line) == [reports]
        line.order(IsolationOver())
        await clock.advance(10)
        assert len(handed_over(line)) == 2
        assert [(await app.job(id_)).losses for id_ in sorted(reports.jobs)] == [3, 2, 2]


async def test_a_job_that_cannot_start_soon_in_the_fresh_process_goes_back(app, store, clock, line):
    suspect, _ = await suspect_beside_another(app, store, clock, line)
    await store.jobs.beat(["second"], ttl=1000, meta={})
    long = await app.work.using(priority=0).enqueue(60)
    claimed = await store.jobs.claim("second", 1, ["default"], 10)
    resumed = HandOver("second", [long.id, suspect.id])
    worker = supervised(app, line, grace=100, resumed=resumed)
    async with worker:
        await clock.advance(4)
        assert {job.state for job in (await suspect.refresh(), await long.refresh())} == {"running"}
        await clock.advance(10)
        assert (await suspect.refresh()).state == "waiting"
        assert (await long.refresh()).state == "running"
        await clock.advance(60)
        assert (await long.refresh()).state == "succeeded"
    assert claimed.jobs


async def test_a_suspicious_job_stays_alone_when_its_worker_gets_a_message(app, store, clock, line):
    suspect, _ = await suspect_beside_another(app, store, clock, line)
    await store.jobs.beat(["second"], ttl=1000, meta={})
    long = await app.work.using(priority=0).enqueue(3)
    await store.jobs.claim("second", 1, ["default"], 10)
    resumed = HandOver("second", [long.id, suspect.id])
    worker = supervised(app, line, grace=100, resumed=resumed)
    async with worker:
        await clock.advance(1)
        line.repeats = RecordRenewed(line.replica, ["another job"], held=2, revived=False)
        await clock.advance(1)
        assert (ran_here(app, long), ran_here(app, suspect)) == (True, False)
        await clock.advance(2)
        assert ran_here(app, suspect)


async def test_a_claim_that_gets_another_job_costs_nothing(app, store, clock, line, faults):
    await suspect_beside_another(app, store, clock, line)
    await app.pause_queue("default")
    async with supervised(app, line):
        await clock.advance(1)
        urgent = app.work.using(priority=0)
        faults.delay("join", 1)  # of the second replica: it is claimed before that
        await app.resume_queue("default")
        await clock.advance(0.5)
        await urgent.enqueue(0)
        faults.heal()
        for _ in range(12):  # no heartbeats for the second replica here
            await clock.advance(0.5)
        assert len(handed_over(line)) == 1
        second_replicas = {
            report.replica for report in line.reports if isinstance(report, IsolationJoined)
        }
        left = {report.replica for report in line.reports if isinstance(report, IsolationLeft)}
        assert second_replicas - left == {handed_over(line)[0].replica}
    assert {job.losses for job in await app.jobs()} == {0, SUSPICIOUS}
    assert {job.failures for job in await app.jobs()} == {0}


async def test_a_suspicious_job_goes_back_if_the_supervisor_is_gone(app, store, clock, line):
    line.is_closed = True
    suspect, _ = await suspect_beside_another(app, store, clock, line)
    async with supervised(app, line):
        await clock.advance(3)
        assert handed_over(line) == []
    await suspect.refresh()
    assert (suspect.state, suspect.losses) == ("waiting", SUSPICIOUS)


async def test_the_number_of_losses_before_isolation_is_a_setting(make, store, clock, line):
    app = await make(isolate_after=4)
    suspect, _ = await suspect_beside_another(app, store, clock, line)
    async with supervised(app, line):
        await clock.advance(3)
        assert (await suspect.refresh()).state == "succeeded"
        assert handed_over(line) == []


async def test_a_worker_recovers_jobs_if_its_supervisor_is_silent(app, store, clock, line):
    @app.task
    async def work() -> str:
        return "done"

    async with supervised(app, line):
        await clock.advance(3 * DEFAULT_TTL)
        await app.pause_queue("default")
        job = await work.enqueue()
        await app.resume_queue("default")
        await claim_and_die(store)
        await clock.advance(3 * DEFAULT_TTL)
        assert await job.result(0) == "done"
    assert (job.attempt, job.losses) == (2, 1)


async def test_heartbeats_for_a_former_replica_id_do_not_count(app, store, clock, line):
    async with supervised(app, line):
        await clock.advance(0)
        first = line.replica
        line.repeats = TakenOver(first)
        await clock.advance(1)
        line.repeats = RecordRenewed(first, [], held=0, revived=False)
        for _ in range(20):
            await clock.advance(DEFAULT_TTL / 5)
            [left] = [
                report.expires_in
                for report in await store.jobs.replicas()
                if report.id == line.replica
            ]
            assert left > 0


async def test_the_heartbeats_of_a_worker_are_no_more_frequent_than_needed(
    app, clock, line, faults
):
    async with supervised(app, line):
        await clock.advance(10 * DEFAULT_TTL)
    assert 10 < faults.calls["beat"] < 50


async def test_a_job_that_was_taken_over_before_its_hand_over_runs_once(app, store, clock, line):
    ran: list[None] = []

    @app.task
    async def work() -> None:
        ran.append(None)

    job = await work.enqueue()
    await claim_and_die(store, "another", ttl=1000)  # which has the job now and is working on it
    resumed = HandOver("before", [job.id])
    worker = supervised(app, line, resumed=resumed)
    async with worker:
        await clock.advance(2 * DEFAULT_TTL)
    assert ran == []
    assert (await job.refresh()).state == "running"
