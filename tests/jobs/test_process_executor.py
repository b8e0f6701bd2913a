"""CPU-bound tasks in child processes: arguments and results, stopping, deaths and reuse."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from tenure import Backoff, Job, JobRequest, ResultUnavailable, Tenure
from tenure.app import engine_of
from tenure.runtime.attempts.processes import child as processes
from tenure.runtime.attempts.reports import RaisedInChild
from tests.jobs import cpu_tasks
from tests.jobs.replicas import finished
from tests.rig.endings import recover
from tests.rig.processes import Fleet
from tests.rig.spawn import alive, family, send
from tests.rig.wait import wait_until, wait_until_async

Run = Callable[[JobRequest], Awaitable[Job]]


def app_with_tasks(**settings: object) -> Tenure:
    """Return a new app with the tasks of `cpu_tasks`."""
    app = Tenure("memory://", **settings)
    engine_of(app).registry.handlers.update(engine_of(cpu_tasks.app).registry.handlers)
    return app


@asynccontextmanager
async def working(**settings: object) -> AsyncIterator[Tenure]:
    async with app_with_tasks(process_workers=4, **settings) as app, app.worker(concurrency=4):
        yield app


@pytest.fixture
async def app() -> AsyncIterator[Tenure]:
    async with working(grace=0.1) as app:
        yield app


@pytest.fixture
def run(app: Tenure) -> Run:
    """Run a job to its end."""

    async def run(request: JobRequest) -> Job:
        return await (await app.enqueue(request)).wait(20)

    return run


@pytest.fixture(autouse=True)
def nothing_is_left() -> None:
    before = set(family(os.getpid()))
    yield
    wait_until(lambda: not [pid for pid in family(os.getpid()) if pid not in before])


async def pid_in(file: Path) -> int:
    """Wait until a child has written its pid."""
    return int(await wait_until_async(lambda: file.exists() and file.read_text(), 20))


async def gone(*pids: int) -> None:
    try:
        # Less than the time after which a child that should end by itself is killed.
        await wait_until_async(lambda: not any(map(alive, pids)), 0.8, "killed processes are gone")
    finally:
        send(pids, signal.SIGKILL)


# Arguments and results.


async def test_arguments_and_results_follow_the_types_of_the_signature(run):
    span = cpu_tasks.Span(datetime(2026, 1, 1, tzinfo=UTC), timedelta(days=1))
    job = await run(cpu_tasks.end_of.request(span, timedelta(days=2), timedelta(hours=1), step=2))
    assert await job.result() == datetime(2026, 1, 7, 2, tzinfo=UTC)


async def test_an_error_in_a_child_is_stored_like_one_in_a_thread(app, run):
    in_thread = app.task(name="in_thread", retry=None)(cpu_tasks.fail._handler.function)
    there = await run(cpu_tasks.fail.request("no luck"))
    here = await run(in_thread.request("no luck"))
    assert (there.state, there.reason, there.failures) == ("failed", "error", 1)
    assert there.error == here.error == "LookupError: no luck"
    assert there.trace == here.trace
    assert "KeyError" in there.trace


async def test_exits_and_cancellations_fail_the_attempt_and_not_the_child(run):
    before = await run(cpu_tasks.pid.request())
    assert (await run(cpu_tasks.leave.request())).error == "SystemExit: 4"
    cancelled = await run(cpu_tasks.cancel_itself.request())
    assert cancelled.error == "RuntimeError: the handler cancelled itself"
    assert await (await run(cpu_tasks.pid.request())).result() == await before.result()


async def test_retry_and_reject_work_in_a_child(run):
    job = await run(cpu_tasks.ask_again.request())
    assert (await job.result(), job.failures) == (2, 1)
    assert job.history[0].error == "Retry: not yet"
    job = await run(cpu_tasks.refuse.request())
    assert (job.state, job.reason, job.error) == ("failed", "rejected", "Reject: never")


async def test_results_that_cannot_be_stored_fail_no_job(run):
    for request, problem in (
        (cpu_tasks.wrong_result.request(), "does not fit the return type"),
        (cpu_tasks.long_result.request(2_000_000), "result_limit allows"),
    ):
        job = await run(request)
        assert (job.state, job.failures) == ("succeeded", 0)
        with pytest.raises(ResultUnavailable, match=problem):
            await job.result()
    job = await run(cpu_tasks.forgotten.request())
    assert (job.state, job.reason, job.attempt) == ("failed", "rejected", 1)
    assert "await it there" in job.error
    job = await run(cpu_tasks.long_result.request(1_000_000))
    assert len(await job.result()) == 1_000_000


async def test_contexts_around_an_attempt_see_the_error_of_a_child(app, run):
    seen = []

    @app.around_attempt
    @asynccontextmanager
    async def around(job):
        try:
            yield
        except RaisedInChild as error:
            seen.append((str(error), error.__notes__))
            raise

    job = await run(cpu_tasks.fail.request("no luck"))
    assert seen == [("LookupError: no luck", [job.trace])]


async def test_an_error_of_the_import_is_the_error_of_the_attempt(app, run, make_module):
    module = make_module("""
        from pathlib import Path
        if Path(__file__).with_name("broken").exists():
            raise ModuleNotFoundError("No module named 'numpy'")
        def fine() -> None: ...
    """)
    task = app.task(executor="process", retry=None)(module.fine)
    Path(module.__file__).with_name("broken").touch()
    job = await run(task.request())
    assert job.error == "ModuleNotFoundError: No module named 'numpy'"
    assert Path(module.__file__).name in job.trace


# Context, progress and output in a child.


async def test_current_job_describes_the_job_in_a_child(app, run):
    request = cpu_tasks.about.using(queue="default", tags=["a"], timeout=30).request()
    job = await run(request)
    assert await job.result() == {
        "id": job.id,
        "task": "about",
        "queue": "default",
        "tags": ["a"],
        "attempt": 1,
        "failures": 0,
        "losses": 0,
        "fence": job.record.fence,
        "cancelled": False,
        "deadline": True,
    }


async def test_progress_is_shown_and_a_checkpoint_survives_the_child(app, run, tmp_path):
    job = await app.enqueue(cpu_tasks.tell_and_rest.request(str(tmp_path / "pid")))
    await pid_in(tmp_path / "pid")

    async def is_shown() -> bool:
        await job.refresh()
        return (job.progress, job.message) == (0.25, "a quarter")

    await wait_until_async(is_shown)
    await job.cancel()
    job = await run(cpu_tasks.count_up.request(10))
    assert await job.result() == [6, 10]
    assert (job.attempt, job.failures) == (2, 1)


async def test_progress_before_the_death_of_a_child_is_shown(
    make, clock, faults, tmp_path, monkeypatch
):
    monkeypatch.setattr("tenure.runtime.attempts.running_job._LAST_WORD_SECONDS", 30)
    monkeypatch.setattr("tenure.runtime.attempts.processes.child.END_SECONDS", 30)
    app = await make(faulty=True)
    engine_of(app).registry.handlers.update(engine_of(cpu_tasks.app).registry.handlers)
    faults.delay("note", 1000)
    async with app.worker():
        job = await app.enqueue(cpu_tasks.speak_and_die.request(str(tmp_path / "pid")))
        await clock.advance(0.1)
        await gone(await pid_in(tmp_path / "pid"))
        await asyncio.sleep(0.3)  # in which no settlement may happen
        assert (await job.refresh()).state == "running"
        await clock.advance(1001)
        await finished(job, clock)
    assert (job.state, job.progress, job.message) == ("failed", 1.0, "done")


async def test_unsupported_calls_in_a_child_fail_the_job(run):
    assert "result_limit allows" in (await run(cpu_tasks.save_too_much.request())).error
    job = await run(cpu_tasks.settle_itself.request())
    assert "transaction() needs a handler that runs in the worker's process" in job.error


async def test_late_progress_of_a_job_is_dropped(tmp_path, capfd):
    async with app_with_tasks() as app:
        async with app.worker():
            for word in ("first", "second"):
                job = await (await app.enqueue(cpu_tasks.chatter.request(word))).wait(20)
                assert job.state == "succeeded"
                assert (job.progress, job.message) == (0.8, word)
            after = await app.enqueue(cpu_tasks.about.request())
            assert (await after.wait(20)).state == "succeeded"
        assert (await after.refresh()).message == ""
    assert capfd.readouterr().err == ""  # such as warnings of a loop with unfinished work


async def test_output_of_a_job_is_flushed_when_it_ends(run, capfd, monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    await run(cpu_tasks.whisper.request("hello"))
    assert capfd.readouterr() == ("hello", "hello")


# Stopping.


@pytest.mark.parametrize("task", [cpu_tasks.spin, cpu_tasks.hold_the_interpreter])
async def test_a_time_out_kills_and_the_next_job_gets_a_fresh_child(app, run, task):
    child = await (await run(cpu_tasks.pid.request())).result()
    began = time.monotonic()
    job = await run(task.using(timeout=0.3).request())
    assert time.monotonic() - began < 1.3
    assert (job.state, job.reason, job.failures) == ("failed", "timeout", 1)
    assert job.error == "TimeoutError: it ran longer than its time-out of 0.3 s"
    await gone(child)
    assert await (await run(cpu_tasks.pid.request())).result() != child


async def test_a_time_out_uses_the_injected_clock(make, clock, tmp_path):
    app = await make()
    engine_of(app).registry.handlers.update(engine_of(cpu_tasks.app).registry.handlers)
    async with app.worker():
        rest = cpu_tasks.rest.using(timeout=30)
        job = await app.enqueue(rest.request(60, str(tmp_path / "pid")))
        await clock.advance(0.1)
        child = await pid_in(tmp_path / "pid")
        await clock.advance(29)
        assert (await job.refresh()).state == "running"
        await clock.advance(2)
        await finished(job, clock)
        await gone(child)
    assert job.reason == "timeout"


async def test_a_cancel_kills_the_child_and_all_its_descendants(app, tmp_path):
    job = await app.enqueue(cpu_tasks.start_a_program.request(str(tmp_path / "pid")))
    program = await pid_in(tmp_path / "pid")
    await job.cancel(reason="enough")
    await job.wait(2)
    assert (job.state, job.reason, job.failures) == ("cancelled", "enough", 0)
    await gone(program)


async def test_a_job_that_was_taken_over_is_killed(make, store, clock, faults, tmp_path):
    app = await make(faulty=True)
    engine_of(app).registry.handlers.update(engine_of(cpu_tasks.app).registry.handlers)
    async with app.worker():
        job = await app.enqueue(cpu_tasks.rest.request(60, str(tmp_path / "pid")))
        await clock.advance(0.1)
        child = await pid_in(tmp_path / "pid")
        faults.lose_request("beat", times=100_000)
        await clock.advance(11)
        await recover(store, delays=[1000.0], grace=25)
        faults.heal()
        await clock.advance(5)
        await gone(child)
        assert ((await job.refresh()).state, job.losses) == ("waiting", 1)


async def test_a_worker_that_stops_kills_after_the_grace_and_hands_back(tmp_path):
    async with app_with_tasks(grace=0.2) as app:
        async with app.worker():
            job = await app.enqueue(cpu_tasks.rest.request(60, str(tmp_path / "pid")))
            idle = await (await app.enqueue(cpu_tasks.pid.request())).result(20)
            busy = await pid_in(tmp_path / "pid")
            began = time.monotonic()
        assert 0.2 <= time.monotonic() - began < 1.5
        assert not alive(busy)
        assert not alive(idle)
        await job.refresh()
        assert (job.state, job.failures, job.losses) == ("waiting", 0, 0)


async def test_a_worker_that_stops_lets_a_job_finish_within_the_grace(tmp_path):
    async with app_with_tasks(grace=10) as app:
        async with app.worker():
            job = await app.enqueue(cpu_tasks.rest.request(0.3, str(tmp_path / "pid")))
            await pid_in(tmp_path / "pid")
        assert (await job.refresh()).state == "succeeded"


def test_children_die_with_a_worker_that_is_killed(tmp_path):
    with Fleet() as fleet:
        worker = fleet.start("-m", "tests.jobs.cpu_worker", tmp_path / "pid")
        idle = worker.expect("idle")["pid"]
        busy = worker.expect("busy")["pid"]
        os.kill(worker.pid, signal.SIGKILL)
        try:
            wait_until(lambda: not alive(busy) and not alive(idle), 2)
        finally:
            send([busy, idle], signal.SIGKILL)


async def test_a_child_whose_worker_hangs_up_ends_by_itself(app, tmp_path):
    idle = await processes.Child.start(None)
    idle._writer.close()
    assert await asyncio.wait_for(idle._gone, 5) == 0
    busy = await processes.Child.start(None)
    job = await app.enqueue(cpu_tasks.rest.request(0))
    record = (await job.wait(20)).record
    payload = f'{{"seconds":60,"file":"{tmp_path / "pid"}"}}'.encode()
    order = processes.Run("tests.jobs.cpu_tasks", "rest", replace(record, payload=payload), 1000)
    processes.send(busy._writer, order)
    await pid_in(tmp_path / "pid")
    busy._writer.close()
    assert await asyncio.wait_for(busy._gone, 5) == -signal.SIGKILL


@pytest.mark.parametrize("number", processes.STOP_SIGNALS, ids=lambda number: number.name)
async def test_a_signal_to_stop_is_left_to_the_worker(app, tmp_path, number):
    job = await app.enqueue(cpu_tasks.rest.request(0.3, str(tmp_path / "pid")))
    child = await pid_in(tmp_path / "pid")
    assert os.getpgid(child) != os.getpgid(0)
    os.kill(child, number)
    assert await job.result(10) == child


async def test_a_signal_to_stop_ends_processes_that_a_handler_has_forked(run):
    """`multiprocessing` ends its own processes with SIGTERM, and waits until they are gone."""
    assert await (await run(cpu_tasks.terminate_a_fork.request())).result() == -signal.SIGTERM


async def test_a_signal_to_stop_while_a_child_starts_fails_no_job(run, tmp_path, monkeypatch):
    dying = (
        "import os, pathlib, signal; first = pathlib.Path({!r}); "
        "first.exists() or first.touch() or os.kill(os.getpid(), signal.SIGTERM); {}"
    )
    program = dying.format(str(tmp_path / "first"), processes._PROGRAM)
    monkeypatch.setattr("tenure.runtime.attempts.processes.child._PROGRAM", program)
    job = await run(cpu_tasks.pid.request())
    assert (tmp_path / "first").exists()
    assert (job.state, job.attempt, job.failures) == ("succeeded", 1, 0)


# Deaths.


@pytest.mark.parametrize(
    ("request_", "how"),
    [
        (cpu_tasks.exit_with.request(3), "its process ended with exit code 3 in the middle"),
        (cpu_tasks.die_of.request(signal.SIGSEGV), "its process was killed by SIGSEGV"),
        (cpu_tasks.die_of.request(signal.SIGKILL), "ran out of memory"),
        (cpu_tasks.cut_the_connection.request(), "closed the connection"),
    ],
    ids=["exit", "segv", "kill", "cut"],
)
async def test_a_child_that_dies_fails_its_attempt(run, request_, how, monkeypatch):
    monkeypatch.setattr("tenure.runtime.attempts.processes.child.END_SECONDS", 0.2)
    job = await run(request_)
    assert (job.state, job.reason, job.failures, job.losses) == ("failed", "error", 1, 0)
    assert job.error.startswith("tenure.errors.ProcessDied: ")
    assert how in job.error
    assert job.trace == ""


async def test_a_death_counts_under_the_backoff_of_the_task(app, run):
    twice = Backoff(max_attempts=2, base=0)
    die = app.task(name="die", executor="process", retry=twice)(
        cpu_tasks.exit_with._handler.function
    )
    job = await run(die.request(3))
    assert (job.state, job.attempt, job.failures) == ("failed", 2, 2)


async def test_a_job_that_kills_a_used_child_has_run_once(run, tmp_path):
    for _ in range(3):
        await run(cpu_tasks.pid.request())
        await run(cpu_tasks.die_of.request(signal.SIGKILL, str(tmp_path / "ledger")))
    assert (tmp_path / "ledger").read_text() == "run\n" * 3


async def test_a_child_that_dies_while_it_is_idle_harms_no_job(run):
    child = await (await run(cpu_tasks.pid.request())).result()
    os.kill(child, signal.SIGKILL)
    await gone(child)
    job = await run(cpu_tasks.pid.request())
    assert await job.result() != child
    assert job.failures == 0


async def test_a_child_that_dies_before_it_begins_harms_no_job(app, run):
    child = await (await run(cpu_tasks.pid.request())).result()
    os.kill(child, signal.SIGSTOP)
    wait_until(lambda: state_of(child) == "T", 10, "it has stopped")
    job = await app.enqueue(cpu_tasks.pid.request())
    await wait_until_async(lambda: has_started(job))
    for _ in range(100):  # the order goes to the child in a few turns of the loop
        await asyncio.sleep(0)
    os.kill(child, signal.SIGKILL)
    assert await job.result(20) != child
    assert job.failures == 0


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def has_started(job: Job) -> bool:
    return (await job.refresh()).state == "running"


async def test_processes_forked_by_a_dying_job_die_too(app, tmp_path, monkeypatch):
    monkeypatch.setattr("tenure.runtime.attempts.processes.child.END_SECONDS", 0.2)
    job = await app.enqueue(cpu_tasks.fork_and_die.request(str(tmp_path / "pid")))
    forked = await pid_in(tmp_path / "pid")
    try:
        await job.wait(5)
    finally:
        await gone(forked)
    assert "exit code 5" in job.error


async def test_twenty_good_jobs_beside_bad_ones_succeed_and_no_slot_is_lost(tmp_path):
    async with working(process_memory="120MB") as app:
        bad = [
            cpu_tasks.exit_with.request(3),
            cpu_tasks.die_of.request(signal.SIGSEGV),
            cpu_tasks.eat_memory.request(),
            cpu_tasks.spin.using(timeout=0.5).request(),
        ]
        good = [cpu_tasks.rest.request(0.01) for _ in range(20)]
        failed = [await app.enqueue(request) for request in bad]
        jobs = await app.enqueue_many(good)
        for job in (*jobs, *failed):
            await job.wait(20)
        assert {job.state for job in jobs} == {"succeeded"}
        assert {job.state for job in failed} == {"failed"}
        assert {job.attempt for job in jobs} == {1}
        meet = cpu_tasks.meet.request(str(tmp_path), 4)
        together = await app.enqueue_many(meet for _ in range(4))
        pids = {await job.result(20) for job in together}
        assert len(pids) == 4


async def test_a_job_that_exceeds_process_memory_is_stopped_with_the_reason():
    async with working(process_memory="120MB") as app:
        job = await (await app.enqueue(cpu_tasks.eat_memory.request())).wait(20)
    assert job.error.startswith("tenure.errors.ProcessDied: its process was ended because it used")
    assert job.error.endswith("and process_memory allows 120 MB")


# Reuse.


async def test_children_are_used_again_up_to_a_number_of_jobs(run, monkeypatch):
    monkeypatch.setattr("tenure.runtime.attempts.processes.child._JOBS_MAX", 3)
    pids = [await (await run(cpu_tasks.pid.request())).result() for _ in range(7)]
    assert pids[0:3] == [pids[0]] * 3
    assert pids[3:6] == [pids[3]] * 3
    assert len(set(pids)) == 3


async def test_a_child_that_keeps_much_memory_is_replaced():
    async with working(process_memory="200MB") as app:
        pids = [
            await (await app.enqueue(cpu_tasks.take_memory.request(count))).result(20)
            for count in (0, 100_000_000, 0)
        ]
    assert pids[0] == pids[1] != pids[2]


async def test_a_child_that_is_idle_for_long_ends(run, monkeypatch):
    monkeypatch.setattr("tenure.runtime.attempts.processes.child._IDLE_SECONDS", 0.05)
    await gone(await (await run(cpu_tasks.pid.request())).result())
    assert (await run(cpu_tasks.pid.request())).state == "succeeded"


async def test_a_child_that_is_no_longer_needed_ends_by_itself(tmp_path):
    """Exit handlers of libraries run; only a child that does not end is killed."""
    async with working() as app:
        await (await app.enqueue(cpu_tasks.write_at_exit.request(str(tmp_path / "bye")))).wait(20)
    assert (tmp_path / "bye").read_text() == "it ended by itself"


async def test_the_loop_stays_free_while_a_job_computes(app, run):
    job = await app.enqueue(cpu_tasks.hold_the_interpreter.using(timeout=1).request())
    longest, last = 0.0, time.monotonic()
    while not (await job.refresh()).is_finished:
        await asyncio.sleep(0.005)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    assert longest < 0.5


async def test_a_checkpoint_saved_by_a_leftover_thread_is_refused(run: Run):
    first = await run(cpu_tasks.leave_a_thread.request())
    second = await run(cpu_tasks.hear_the_late_thread.request())
    process, [answer] = await second.result(0)
    assert process == await first.result(0)
    assert f"job {first.id} no longer runs" in answer
    assert (await first.refresh()).state == "succeeded"
