"""A loop that is blocked for longer than the ttl loses no job, and the blocking code is named."""

import asyncio
import ctypes
import sys
import time

from tenure import Tenure, current_job
from tenure.observe import AttemptLost, InterpreterBlocked, JobsRecovered, LoopBlocked, ReplicaLost
from tests.jobs.replicas import of_kind
from tests.rig.waiting import wait_until_async


def hog(seconds: float) -> None:
    time.sleep(seconds)


async def test_heartbeats_continue_and_the_blocking_stack_is_reported(real_make, monkeypatch):
    monkeypatch.setattr("tenure.runtime.work.loop_watch._BLOCKED_AFTER", 0.8)
    monkeypatch.setattr("tenure.runtime.work.loop_watch._LOOK_EVERY", 0.1)
    app = await real_make(replica_ttl=1)
    events: list = []
    app.on_event(events.append)
    runs = []

    @app.task
    async def neighbour() -> str:
        runs.append("neighbour")
        await asyncio.sleep(3)
        return "undisturbed"

    @app.task
    async def blocks() -> None:
        runs.append("blocks")
        hog(2.5)

    async with app.worker() as worker:
        await worker.ready()
        first = worker.replica
        job = await neighbour.enqueue()
        await wait_until_async(lambda: runs)
        blocking = await blocks.enqueue()
        await blocking.wait(20)
        assert await job.result(20) == "undisturbed"
        assert worker.replica == first
    assert runs == ["neighbour", "blocks"]
    assert (job.attempt, job.losses, blocking.attempt, blocking.losses) == (1, 0, 1, 0)
    [blocked] = of_kind(events, LoopBlocked)
    assert blocked.seconds >= 0.8
    assert "hog(2.5)" in blocked.stack
    assert (blocked.task, blocked.job) == ("blocks", blocking.id)
    assert not of_kind(events, AttemptLost | JobsRecovered | ReplicaLost)


async def test_code_that_blocks_the_interpreter_is_reported_with_advice(real_make, monkeypatch):
    monkeypatch.setattr("tenure.runtime.work.loop_watch._BLOCKED_AFTER", 0.8)
    app = await real_make(replica_ttl=1.5)
    events: list = []
    app.on_event(events.append)

    @app.task
    def keeps_the_interpreter() -> None:
        ctypes.PyDLL(None).sleep(2)  # unlike CDLL it keeps the GIL

    async with app.worker():
        job = await keeps_the_interpreter.enqueue()
        await wait_until_async(lambda: of_kind(events, InterpreterBlocked))
    [blocked, *_] = of_kind(events, InterpreterBlocked)
    assert blocked.seconds >= 1.5
    assert f"keeps_the_interpreter {job.id}" in blocked.jobs
    message = str(blocked)
    assert "replica_ttl is 1.5 s: other workers have taken this worker for dead" in message
    assert "executor='process'" in message
    assert "tenure worker" in message


async def test_a_job_that_ended_before_the_next_look_is_named_too(monkeypatch):
    monkeypatch.setattr("tenure.runtime.work.loop_watch._BLOCKED_AFTER", 0.8)
    events: list = []
    async with Tenure("memory://", replica_ttl=1.5) as app:
        app.on_event(events.append)

        @app.task
        async def keeps_the_interpreter() -> None:
            sys.setswitchinterval(60)  # the watching thread runs after the end of this job
            ctypes.PyDLL(None).sleep(2)

        try:
            async with app.worker():
                job = await keeps_the_interpreter.enqueue()
                await wait_until_async(lambda: of_kind(events, InterpreterBlocked))
        finally:
            sys.setswitchinterval(0.005)
    [blocked, *_] = of_kind(events, InterpreterBlocked)
    assert blocked.jobs == (f"keeps_the_interpreter {job.id}",)


async def test_a_thread_that_runs_far_longer_than_the_ttl_runs_once(real_make):
    starts = []

    def long() -> str:
        starts.append(current_job().attempt)
        time.sleep(3.5)
        return "once"

    apps = [await real_make(replica_ttl=1) for _ in range(2)]
    [task, _] = [app.task(long) for app in apps]
    async with apps[0].worker(), apps[1].worker():
        job = await task.enqueue()
        assert await job.result(20) == "once"
    assert starts == [1]
    assert (job.attempt, job.losses) == (1, 0)


async def test_the_loop_of_a_stopped_worker_is_not_watched(monkeypatch):
    monkeypatch.setattr("tenure.runtime.work.loop_watch._BLOCKED_AFTER", 0.1)
    monkeypatch.setattr("tenure.runtime.work.loop_watch._LOOK_EVERY", 0.02)
    events: list = []
    async with Tenure("memory://") as app:
        async with app.worker():
            pass
        app.on_event(events.append)
        hog(0.6)
    assert of_kind(events, LoopBlocked) == []
