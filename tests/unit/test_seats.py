"""A supervisor in virtual time, with children that the test plays: seats, restarts, kills."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tenure import Tenure
from tenure.core.jobs.records import NewJob
from tenure.runtime.supervised.messages import (
    BeatFailed,
    HandOver,
    IsolationJoined,
    IsolationLeft,
    IsolationOver,
    Joined,
    Stop,
    encode_message,
)
from tenure.runtime.supervised.scoreboard import Scoreboard
from tenure.stores.connect import connect
from tenure.supervisor import supervisor as seats
from tenure.supervisor.child import Child
from tenure.supervisor.limits import SupervisorOptions
from tenure.supervisor.spec import ChildSpec
from tenure.supervisor.supervisor import Supervisor
from tenure.testing import ManualClock
from tests.rig.wait import wait_until_async

SPEC = ChildSpec(app="", queues=None, concurrency=1, grace=5.0, log_level=None)


class Process:
    """Stands for the process of a child; `end` is how the test lets it end."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.returncode: int | None = None
        self.signals: list[int] = []
        self._ended = asyncio.Event()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def end(self, code: int) -> None:
        if self.returncode is None:
            self.returncode = code
            self._ended.set()

    def kill(self) -> None:
        self.signals.append(signal.SIGKILL)
        self.end(-signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        self.signals.append(number)


class Played:
    """One child: what the supervisor has of it, and the worker's end of its line."""

    def __init__(self, child: Child, process: Process, line: socket.socket) -> None:
        self.child = child
        self.process = process
        self.line = line

    def say(self, word: Any) -> None:
        self.line.sendall(encode_message(word) + b"\n")

    def end(self, code: int = 0) -> None:
        self.line.close()
        self.process.end(code)


class Stage:
    """Starts children in the place of the supervisor's own way."""

    def __init__(self) -> None:
        self.played: list[Played] = []
        self.specs: list[ChildSpec] = []
        self.failures = 0
        """How many starts fail from now on."""
        self.goes_on = asyncio.Event()
        """Cleared to keep starts from coming to their end."""
        self.goes_on.set()

    async def spawn(self, spec: ChildSpec, now: float, spawning: asyncio.Lock) -> Child:
        self.specs.append(spec)
        if self.failures:
            self.failures -= 1
            raise OSError("no process left")
        await self.goes_on.wait()
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        process: Any = Process()
        file = Scoreboard.make_file(spec.concurrency)
        board = Scoreboard(file, spec.concurrency)
        os.close(file)
        child = Child(process, reader, writer, board, now)
        self.played.append(Played(child, process, theirs))
        return child

    @property
    def last(self) -> Played:
        return self.played[-1]


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    stage = Stage()
    monkeypatch.setattr(Child, "spawn", stage.spawn)
    monkeypatch.setattr(seats, "_DUMP_SECONDS", 0.0)
    yield stage
    for played in stage.played:
        played.line.close()
        played.child._writer.transport.abort()  # it may have things to say
    await asyncio.sleep(0)  # in which connections come to their end


@pytest.fixture
async def supervisor(clock: ManualClock, stage: Stage) -> AsyncIterator[Supervisor]:
    app = Tenure(connect("memory://", namespace="test", clock=clock))
    async with app:
        supervisor = Supervisor(app, SPEC, SupervisorOptions(processes=1))
        running = asyncio.create_task(supervisor.run())
        await wait_until_async(lambda: stage.specs)
        yield supervisor
        supervisor.stop()
        for played in stage.played:
            played.end()
        await until(clock, running.done)
        await running


async def hears(played: Played, *words: Stop) -> None:
    """Expect that the next words to a child are these."""
    played.line.settimeout(5)
    received = b""
    while received.count(b"\n") < len(words):
        await asyncio.sleep(0.01)
        received += played.line.recv(1000)
    assert received == b"".join(encode_message(word) + b"\n" for word in words)


async def until(clock: ManualClock, condition: Any, step: float = 0.05) -> None:
    """Let time pass until something is the case."""

    async def is_so() -> bool:
        for _ in range(50):
            if condition():
                return True
            await clock.advance(step)
        return bool(condition())

    await wait_until_async(is_so, 10)


async def test_children_that_die_young_are_replaced_later_and_later(
    supervisor: Supervisor, stage: Stage, clock: ManualClock
):
    pauses = []
    for number in range(1, 9):
        stage.last.end(1)
        await wait_until_async(lambda: not supervisor._children)
        began = clock.boot()
        await until(clock, lambda count=number: len(stage.played) > count)
        pauses.append(clock.boot() - began)
    for number, pause in enumerate(pauses):
        longest = min(30.0, 0.5 * 2**number)
        assert longest / 2 <= pause <= longest + 0.2
    # One that lived long enough is replaced at once, and the count begins anew.
    await clock.advance(10)
    stage.last.end(1)
    await wait_until_async(lambda: len(stage.played) == 10)


async def test_starts_that_fail_are_tried_again_later_and_later(
    supervisor: Supervisor, stage: Stage, clock: ManualClock
):
    stage.failures = 3
    stage.last.end(1)
    await until(clock, lambda: len(stage.specs) == 5)
    assert len(stage.played) == 2
    assert clock.boot() - 1000 >= (0.5 + 1 + 2 + 4) / 2


TTL = 10.0  # the default
JOB = "0193e0e8-0000-7000-8000-000000000000"


async def lodging(supervisor: Supervisor, played: Played) -> None:
    """Have a worker say that it has joined, and is about to claim a job as another replica."""
    for replica in ("ann", "second"):
        await supervisor._store.jobs.beat([replica], ttl=TTL, meta={})
    played.say(Joined("ann"))
    played.say(IsolationJoined("second"))
    await wait_until_async(lambda: played.child.second_replica)


async def test_a_job_gets_a_process_of_its_own_beside_the_seat(
    supervisor: Supervisor, stage: Stage, clock: ManualClock
):
    first = stage.last
    await lodging(supervisor, first)
    handed = HandOver("second", ["job"])
    first.say(handed)
    await wait_until_async(lambda: len(stage.played) == 2)
    assert stage.specs[-1].resumed == handed
    extra = stage.last
    await wait_until_async(lambda: extra.child.replica == "second")
    assert not first.child.vacated.is_set()
    await clock.advance(10 * TTL)
    assert sorted(await living(supervisor)) == ["ann", "second"]
    # Its end is told, its replica is gone, and the seat stays in service.
    extra.end(0)
    first.line.setblocking(False)
    received = b""
    while encode_message(IsolationOver()) not in received:  # among beats
        received += await asyncio.get_running_loop().sock_recv(first.line, 1000)
    await until(clock, lambda: extra.child not in supervisor._children)
    await clock.advance(1)
    assert await living(supervisor) == ["ann"]
    assert len(stage.played) == 2


async def test_a_second_replica_is_beaten_for_before_it_has_a_process(
    supervisor: Supervisor, stage: Stage, clock: ManualClock
):
    await lodging(supervisor, stage.last)
    await clock.advance(10 * TTL)
    assert sorted(await living(supervisor)) == ["ann", "second"]
    stage.last.say(IsolationLeft("second"))
    await wait_until_async(lambda: stage.last.child.second_replica is None)
    await clock.advance(3 * TTL)
    assert await living(supervisor) == ["ann"]


async def test_a_second_replica_is_given_back_with_its_worker(
    supervisor: Supervisor, stage: Stage, clock: ManualClock
):
    first = stage.last
    await lodging(supervisor, first)
    await supervisor._store.jobs.insert([NewJob(id=JOB, task="work")])
    await supervisor._store.jobs.claim("second", 1, ["default"], 1)
    first.end(1)
    await until(clock, lambda: len(stage.played) == 2)
    [job] = await supervisor._store.jobs.get([JOB])
    assert (job.state, job.losses) == ("waiting", 0)
    assert await living(supervisor) == []


@pytest.mark.parametrize("why", ["no-start", "too-many", "stopping"])
async def test_a_job_without_a_process_of_its_own_goes_back(
    supervisor: Supervisor, stage: Stage, clock: ManualClock, why: str
):
    first = stage.last
    await lodging(supervisor, first)
    await supervisor._store.jobs.insert([NewJob(id=JOB, task="work")])
    await supervisor._store.jobs.claim("second", 1, ["default"], 1)
    if why == "no-start":
        stage.failures = 1
    elif why == "too-many":
        first.say(HandOver("other", ["job"]))
        await wait_until_async(lambda: len(stage.played) == 2)
    else:
        supervisor.stop()
    started = len(stage.played)
    first.say(HandOver("second", [JOB]))

    async def is_back() -> bool:
        await clock.advance(0.1)
        [job] = await supervisor._store.jobs.get([JOB])
        return (job.state, job.losses) == ("waiting", 0)

    await wait_until_async(is_back)
    assert len(stage.played) == started


OTHER = "0193e0e8-0000-7000-8000-000000000001"


async def hand_over(supervisor: Supervisor, played: Played, lodger: str, job_id: str = JOB) -> None:
    """Have a worker claim a job as another replica, and pass it on."""
    store = supervisor._store
    await store.jobs.beat([lodger], ttl=TTL, meta={})
    claimed = await store.jobs.claim(lodger, 1, ["default"], 1)
    assert claimed is not None
    assert [job.id for job in claimed.jobs] == [job_id]
    played.say(IsolationJoined(lodger))
    played.say(HandOver(lodger, [job_id]))


async def given_back(supervisor: Supervisor, lodger: str, job_id: str = JOB) -> float:
    """Wait until the job of a replica waits again; return in how many seconds it is due."""
    store = supervisor._store
    await wait_until_async(lambda: is_gone(supervisor, lodger))
    [job] = await store.jobs.get([job_id])
    assert (job.state, job.losses, job.failures) == ("waiting", 0, 0)
    return (job.due - (await store.ping()).now) / 1e6


async def is_gone(supervisor: Supervisor, lodger: str) -> bool:
    return lodger not in [replica.id for replica in await supervisor._store.jobs.replicas()]


@pytest.mark.parametrize("why", ["import-error", "out-of-memory", "no-start"])
async def test_jobs_whose_own_process_dies_before_they_begin_go_back_for_longer_and_longer(
    supervisor: Supervisor,
    stage: Stage,
    clock: ManualClock,
    why: str,
    caplog: pytest.LogCaptureFixture,
):
    first = stage.last
    await supervisor._store.jobs.insert([NewJob(id=JOB, task="work")])
    for number in range(8):
        caplog.clear()
        stage.failures = 1 if why == "no-start" else 0
        await hand_over(supervisor, first, f"lodger {number}")
        await wait_until_async(lambda count=number: len(stage.specs) == 2 + count)
        if why != "no-start":
            await wait_until_async(lambda count=number: len(stage.played) == 2 + count)
            stage.last.end(1 if why == "import-error" else -signal.SIGKILL)
        pause = await given_back(supervisor, f"lodger {number}")
        longest = min(30.0, 0.5 * 2**number)
        assert longest / 2 - 0.01 <= pause <= longest
        warnings = [
            record.getMessage() for record in caplog.records if record.levelname == "WARNING"
        ]
        [warning] = [text for text in warnings if "tried again" in text]
        assert JOB in warning
        assert f"tried again in {pause:.1f} s" in warning
        clock.shift(pause + 0.001)


async def test_no_process_of_its_own_is_started_before_the_pause_is_over(
    supervisor: Supervisor, stage: Stage, clock: ManualClock
):
    first = stage.last
    await supervisor._store.jobs.insert([NewJob(id=JOB, task="work")])
    await hand_over(supervisor, first, "one")
    await wait_until_async(lambda: len(stage.played) == 2)
    stage.last.end(1)
    pause = await given_back(supervisor, "one")
    clock.shift(0.1)
    await supervisor._store.jobs.insert([NewJob(id=OTHER, task="work")])
    await hand_over(supervisor, first, "two", OTHER)
    left = await given_back(supervisor, "two", OTHER)
    assert left == pytest.approx(pause - 0.1, abs=0.001)
    assert len(stage.specs) == 2
    clock.shift(left + 0.001)
    await hand_over(supervisor, first, "three")
    await wait_until_async(lambda: len(stage.played) == 3)


async def test_a_job_that_begins_ends_the_pauses_of_processes_of_their_own(
    supervisor: Supervisor, stage: Stage, clock: ManualClock
):
    first = stage.last
    await supervisor._store.jobs.insert([NewJob(id=JOB, task="work")])
    for number, begins in enumerate([False, False, True, False]):
        await hand_over(supervisor, first, f"lodger {number}")
        await wait_until_async(lambda count=number: len(stage.played) == 2 + count)
        if begins:
            board = stage.last.child.board
            board.end(board.begin(JOB, 0.0))
        stage.last.end(1)
        pause = await given_back(supervisor, f"lodger {number}")
        longest = {0: 0.5, 1: 1.0, 2: 0.0, 3: 0.5}[number]
        assert longest / 2 - 0.01 <= pause <= longest
        clock.shift(pause + 0.001)


async def test_the_replica_of_a_child_that_is_gone_is_buried(
    supervisor: Supervisor, stage: Stage, clock: ManualClock
):
    first = stage.last
    await supervisor._store.jobs.beat(["ann"], ttl=1000, meta={})
    first.say(Joined("ann"))
    await wait_until_async(lambda: first.child.replica)
    first.end(0)
    await until(clock, lambda: len(stage.played) == 2)
    assert await living(supervisor) == []


async def test_a_supervisor_recovers_the_jobs_of_the_dead(
    supervisor: Supervisor, stage: Stage, clock: ManualClock
):
    store, ttl = supervisor._store, supervisor._ttl
    await store.jobs.beat(["ann"], ttl=ttl, meta={})
    stage.last.say(Joined("ann"))
    await until(clock, lambda: supervisor._beats.last is not None)
    await store.jobs.beat(["ben"], ttl=ttl, meta={})  # which never beats
    began = clock.boot()
    while [replica.id for replica in await store.jobs.replicas()] != ["ann"]:
        await clock.advance(0.1)
        assert clock.boot() - began < 4 * ttl


async def living(supervisor: Supervisor) -> list[str]:
    return [replica.id for replica in await supervisor._store.jobs.replicas() if not replica.dead]


async def until_none_lives(supervisor: Supervisor) -> None:
    async def is_so() -> bool:
        return not await living(supervisor)

    await wait_until_async(is_so, 10)


async def test_a_child_that_does_not_stop_in_time_shows_its_stacks_and_is_killed_once(
    supervisor: Supervisor, stage: Stage, clock: ManualClock
):
    process = stage.last.process
    stage.last.child.kill = lambda: process.signals.append(signal.SIGKILL)  # it takes a while
    supervisor.stop()
    await clock.advance(SPEC.grace + seats._LAST_STEPS - 0.3)
    assert process.signals == []
    await clock.advance(5)
    await wait_until_async(lambda: signal.SIGKILL in process.signals)
    assert process.signals == [signal.SIGUSR2, signal.SIGKILL]


async def test_a_second_stop_hands_jobs_back_at_once(
    supervisor: Supervisor, stage: Stage, clock: ManualClock
):
    supervisor.stop()
    supervisor.stop()
    assert supervisor.is_stopping
    await hears(stage.last, Stop(), Stop(now=True))


async def test_a_child_whose_start_meets_the_stop_is_told_to_stop(
    supervisor: Supervisor, stage: Stage, clock: ManualClock
):
    await wait_until_async(lambda: stage.played)
    stage.goes_on.clear()
    stage.last.end(-signal.SIGKILL)
    await until(clock, lambda: len(stage.specs) == 2)
    supervisor.stop()
    stage.goes_on.set()
    await wait_until_async(lambda: len(stage.played) == 2)
    await hears(stage.last, Stop())


async def test_a_worker_that_cannot_be_used_ends_the_supervisor(
    supervisor: Supervisor, stage: Stage, clock: ManualClock
):
    stage.last.end(2)
    await wait_until_async(lambda: supervisor.is_stopping)
    assert supervisor.exit_code == 2


async def test_one_that_has_worked_before_does_not(
    supervisor: Supervisor, stage: Stage, clock: ManualClock
):
    stage.last.say(Joined("ann"))
    await wait_until_async(lambda: supervisor._has_joined)
    stage.last.end(2)
    await until(clock, lambda: len(stage.played) == 2)
    assert (supervisor.is_stopping, supervisor.exit_code) == (False, 0)


async def test_the_status_says_whether_all_seats_work(
    supervisor: Supervisor, stage: Stage, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    status = supervisor.status()
    assert (status["ready"], status["stopping"]) == (False, False)
    assert status["last_beat_seconds_ago"] is None
    await supervisor._store.jobs.beat(["ann"], ttl=1000, meta={})
    stage.last.say(Joined("ann"))
    await until(clock, lambda: supervisor.status()["last_beat_seconds_ago"] is not None)
    status = supervisor.status()
    assert status["ready"]
    [child] = status["children"]
    assert (child["pid"], child["replica"], child["running"]) == (os.getpid(), "ann", 0)
    assert child["alive"]
    with monkeypatch.context() as patched:
        patched.setattr(stage.last.child, "lives", lambda *_: False)  # it is paused, say
        status = supervisor.status()
        assert not status["ready"]
        assert [child["alive"] for child in status["children"]] == [False]
    clock.shift(1000)  # in which no beat came
    assert not supervisor.status()["ready"]
    supervisor.stop()
    assert supervisor.status()["stopping"]


async def test_a_store_that_goes_away_before_the_first_beat_is_noticed(
    supervisor: Supervisor, stage: Stage, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    await supervisor._store.jobs.beat(["ann"], ttl=1000, meta={})
    stage.last.say(Joined("ann"))
    await until(clock, lambda: supervisor.status()["ready"])
    monkeypatch.setattr(supervisor._beats, "last", None)  # no beat was answered
    monkeypatch.setattr(stage.last.child, "lives", lambda *_: True)
    clock.shift(1000)
    assert not supervisor.status()["ready"]


async def test_closing_a_child_ends_its_line(stage: Stage):
    child = await stage.spawn(SPEC, 0.0, asyncio.Lock())
    child.close()
    stage.last.line.settimeout(5)
    assert await asyncio.to_thread(stage.last.line.recv, 100) == b""
    with pytest.raises(ValueError, match="closed"):
        child.board.started()  # its memory is free


async def test_a_child_that_does_not_read_gets_no_more_beats_but_orders(stage: Stage):
    child = await stage.spawn(SPEC, 0.0, asyncio.Lock())
    for _ in range(100_000):
        child.order(BeatFailed())
    unread = child._writer.transport.get_write_buffer_size()
    assert 0 < unread < 70_000
    child.order(Stop())
    assert child._writer.transport.get_write_buffer_size() > unread
    child.close()


@pytest.mark.parametrize("nonsense", [b"hello\n", b"\xff\n", b'{"type": "Joined"}\n'])
async def test_a_child_is_heard_until_its_first_invalid_message(stage: Stage, nonsense: bytes):
    child = await stage.spawn(SPEC, 0.0, asyncio.Lock())
    stage.last.say(Joined("ann"))
    stage.last.line.sendall(nonsense)
    stage.last.say(Joined("ben"))
    assert [report async for report in child.reports()] == [Joined("ann")]
    child.close()


async def test_without_proc_a_child_lives_for_a_ttl_after_its_start_or_its_last_tick(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tenure.supervisor.child.has_proc", lambda: False)
    child = await stage.spawn(SPEC, 1000.0, asyncio.Lock())
    assert child.lives(1009.0, ttl=10)
    assert not child.lives(1011.0, ttl=10)
    child.board.tick(1012.0)
    assert child.lives(1021.0, ttl=10)
    assert not child.lives(1023.0, ttl=10)
    child.close()


async def test_a_child_that_grows_too_large_at_once_is_replaced_later(supervisor, stage, caplog):
    child = stage.last.child
    child.is_retiring = child.is_too_large = True
    stage.last.end(0)
    # No time passes meanwhile, or the child would have lived for long.
    await wait_until_async(lambda: "the next worker process starts in" in caplog.text)


async def test_a_process_of_its_own_does_not_fill_a_seat(supervisor, stage, clock):
    first = stage.last
    await lodging(supervisor, first)
    first.say(HandOver("second", ["job"]))
    await wait_until_async(lambda: len(stage.played) == 2)
    await until(clock, lambda: supervisor.status()["ready"])
    first.end(1)
    await wait_until_async(lambda: first.child not in supervisor._children)
    assert len(stage.played) == 2
    assert not supervisor.status()["ready"]
