"""A worker under a supervisor, from the inside: what it makes of what it hears, or does not."""

import os
from collections.abc import Iterator

import pytest

from tenure.runtime.alone import _ALONE_PATIENCE
from tenure.runtime.board import Board
from tenure.runtime.words import Beaten, HandOver, InDoubt, Joined, Order, Report, TakenOver
from tests.jobs.replicas import DEFAULT_TTL, claim_and_die, lose_times

SUSPICIOUS = 2


class Line:
    """A lifeline in virtual time: the test is the supervisor."""

    def __init__(self, clock, board: Board) -> None:
        self.board = board
        self.is_cut = False
        self.said: list[Report] = []
        self.says: Order | None = None
        """What the supervisor says every half second; None: nothing."""
        self.dies_at_hand_over = False
        self._clock = clock

    def say(self, word: Report) -> None:
        self.said.append(word)
        self.is_cut = self.dies_at_hand_over and isinstance(word, HandOver)

    async def listen(self, on_stop) -> None:
        await self._clock.sleep(1e9)

    async def news(self, seconds: float) -> Order | None:
        until = self._clock.boot() + seconds
        while self.says is None and (left := until - self._clock.boot()) > 0:
            await self._clock.sleep(min(0.5, left))
        await self._clock.sleep(0.5 if self.says else 0)
        return self.says

    @property
    def replica(self) -> str:
        [*_, last] = [one.replica for one in self.said if isinstance(one, Joined)]
        return last


@pytest.fixture
def line(clock) -> Iterator[Line]:
    file = Board.make_file(10)
    board = Board(file, 10)
    os.close(file)
    yield Line(clock, board)
    board.close()


def supervised(app, line: Line):
    return app._worker(queues=None, concurrency=10, grace=5, lifeline=line)


async def expires_in(store) -> float:
    [replica] = await store.replicas()
    return replica.expires_in


@pytest.mark.parametrize("word", [None, InDoubt()], ids=["silence", "in doubt"])
async def test_it_beats_for_itself_if_the_supervisor_does_not(app, store, clock, line, word):
    line.says = word
    async with supervised(app, line):
        await clock.advance(1)
        for _ in range(20):
            await clock.advance(DEFAULT_TTL / 5)
            assert await expires_in(store) > 0


async def test_it_leaves_the_beats_to_a_supervisor_that_beats(app, store, clock, line):
    async with supervised(app, line):
        await clock.advance(0)
        line.says = Beaten(line.replica, [], held=0, revived=False)
        await clock.advance(3 * DEFAULT_TTL)
        assert await expires_in(store) < 0


async def test_it_hears_of_cancels_by_the_beats_of_its_supervisor(app, clock, line):
    @app.task
    async def work() -> None:
        await clock.sleep(1000)

    async with supervised(app, line):
        job = await work.enqueue()
        await clock.advance(1)
        line.says = Beaten(line.replica, [job.id], held=1, revived=False)
        await clock.advance(1)
        assert (await job.refresh()).state == "cancelled"


async def test_it_joins_anew_when_it_hears_that_it_was_taken_over(app, clock, line):
    async with supervised(app, line):
        await clock.advance(0)
        first = line.replica
        line.says = TakenOver(first)
        await clock.advance(1)
        assert line.replica != first


async def test_what_begins_is_on_the_board_until_it_ends(app, clock, line):
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


async def suspect_beside_another(app, store, clock, line):
    """Let a suspicious job meet a worker in which something has run, and return both."""

    @app.task
    async def work(seconds: float) -> str:
        await clock.sleep(seconds)
        return "done"

    suspect = await work.enqueue(0)
    await lose_times(store, clock, SUSPICIOUS)
    ordinary = await work.using(priority=0).enqueue(2)
    return suspect, ordinary


async def test_a_suspicious_job_is_handed_over(app, store, clock, line):
    suspect, ordinary = await suspect_beside_another(app, store, clock, line)
    worker = supervised(app, line)
    async with worker:
        await clock.advance(3)
        assert (await ordinary.refresh()).state == "succeeded"
        [said] = [one for one in line.said if isinstance(one, HandOver)]
        assert (said.replica, said.job) == (line.replica, suspect.id)
    # It is not left: another process goes on as this replica.
    assert (await suspect.refresh()).state == "running"
    assert [one.id for one in await store.replicas()] == [said.replica]


async def test_nothing_is_handed_over_before_all_is_settled(
    app, store, clock, line, faults, monkeypatch
):
    monkeypatch.setattr("tenure.runtime.worker._SETTLE_SECONDS", 0)  # in real time
    _, ordinary = await suspect_beside_another(app, store, clock, line)
    async with supervised(app, line):
        await clock.advance(0.5)
        faults.lose_request("settle", times=10_000)
        for _ in range(int(3 * _ALONE_PATIENCE)):  # longer than it waits for company to go
            await clock.advance(0.5)
        assert not [one for one in line.said if isinstance(one, HandOver)]
        faults.heal()
        for _ in range(100):
            await clock.advance(1)
        assert (await ordinary.refresh()).state == "succeeded"
    assert (ordinary.attempt, ordinary.losses) == (1, 0)


async def test_who_hands_over_to_nobody_leaves(app, store, clock, line):
    line.dies_at_hand_over = True
    suspect, _ = await suspect_beside_another(app, store, clock, line)
    async with supervised(app, line):
        await clock.advance(3)
        assert [one for one in line.said if isinstance(one, HandOver)]
    await suspect.refresh()
    assert (suspect.state, suspect.losses) == ("waiting", SUSPICIOUS)
    assert await store.replicas() == []


async def test_it_recovers_the_jobs_of_the_dead_if_the_supervisor_is_silent(
    app, store, clock, line
):
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


async def test_beats_for_a_replica_that_it_no_longer_is_do_not_count(app, store, clock, line):
    async with supervised(app, line):
        await clock.advance(0)
        first = line.replica
        line.says = TakenOver(first)
        await clock.advance(1)
        line.says = Beaten(first, [], held=0, revived=False)
        for _ in range(20):
            await clock.advance(DEFAULT_TTL / 5)
            [left] = [one.expires_in for one in await store.replicas() if one.id == line.replica]
            assert left > 0


async def test_its_own_beats_are_no_more_frequent_than_needed(app, clock, line, faults):
    async with supervised(app, line):
        await clock.advance(10 * DEFAULT_TTL)
    assert 10 < faults.calls["beat"] < 50


async def test_a_job_that_was_taken_over_before_its_hand_over_runs_once(app, store, clock, line):
    ran: list[None] = []

    @app.task
    async def work() -> None:
        ran.append(None)

    job = await work.enqueue()
    await claim_and_die(store, "another", ttl=1000)  # which has it now, and is at work
    resumed = HandOver("before", job.id, 1)
    worker = app._worker(queues=None, concurrency=10, grace=5, lifeline=line, resumed=resumed)
    async with worker:
        await clock.advance(2 * DEFAULT_TTL)
    assert ran == []
    assert (await job.refresh()).state == "running"
