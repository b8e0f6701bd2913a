"""How handlers run and end: values, errors, time-outs, threads, and what they can know."""

import asyncio
import threading
import time
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import timedelta
from itertools import pairwise

import pytest

from tenure import (
    Backoff,
    ConfigError,
    JobFailed,
    Reject,
    Retry,
    StoreError,
    Tenure,
    TooLarge,
    current_job,
)
from tenure.core.policy import TTL_MAX
from tenure.core.records import Settlement
from tenure.observe.events import AttemptFailed, HandlerStuck
from tenure.stores.memory import MemoryStore
from tests.jobs.replicas import claim_and_die, of_kind
from tests.rig.waiting import wait_until_async

ONCE = Backoff(max_attempts=1)


class StopEverything(BaseException):
    """Not an Exception, as those that some frameworks stop their tasks with."""


async def finished(job, clock):
    """Let hardly any time pass until a job has ended, in a thread or not."""

    async def has_ended() -> bool:
        await clock.advance(0)
        return (await job.refresh()).is_finished

    await wait_until_async(has_ended)
    return job


@pytest.mark.parametrize("kind", ["async", "sync"])
class TestBothKinds:
    """What does not depend on how a handler runs."""

    def declare(self, app: Tenure, kind: str, body, **options):
        """Declare a task whose handler of that kind calls `body`."""

        async def asynchronous(n: int = 0):
            return body(n)

        def synchronous(n: int = 0):
            return body(n)

        return app.task(name="t", **options)(asynchronous if kind == "async" else synchronous)

    async def test_a_result(self, app, clock, kind):
        task = self.declare(app, kind, lambda n: n + 1)
        async with app.worker():
            job = await finished(await task.enqueue(1), clock)
        assert await job.result() == 2
        [line] = job.history
        assert (line.attempt, line.outcome, line.error) == (1, "succeeded", "")

    @pytest.mark.parametrize("error", [ValueError("no luck"), SystemExit(3), StopEverything("x")])
    async def test_whatever_it_raises_fails_the_job_and_not_the_worker(
        self, app, clock, kind, error
    ):
        def fail(n):
            if n == 0:
                raise error
            return n

        task = self.declare(app, kind, fail, retry=None)
        async with app.worker():
            job = await finished(await task.enqueue(), clock)
            with pytest.raises(JobFailed) as caught:
                await job.result()
            assert (caught.value.job, caught.value.reason) == (job.id, "error")
            assert type(error).__name__ in job.error
            assert str(error) in job.error
            assert "in fail" in job.trace
            assert (job.failures, job.losses, job.attempt) == (1, 0, 1)
            after = await finished(await task.enqueue(5), clock)
            assert await after.result() == 5

    async def test_errors_that_cannot_be_shown_or_stored_as_they_are(self, app, clock, kind):
        class Unprintable(Exception):
            def __str__(self) -> str:
                raise RuntimeError("not even this")

        errors = [Unprintable(), OSError("no file \udcff"), ValueError("x" * 1_000_000)]

        def fail(n):
            raise errors[n]

        task = self.declare(app, kind, fail, retry=None)
        async with app.worker():
            jobs = [await finished(await task.enqueue(n), clock) for n in range(3)]
        assert [job.state for job in jobs] == ["failed"] * 3
        assert "Unprintable" in jobs[0].error
        assert "\\udcff" in jobs[1].error
        assert len(jobs[2].record.error) < 20_000

    async def test_a_result_that_has_no_form_fails_at_once(self, app, clock, kind):
        class Model:
            def model_dump(self, mode):
                raise KeyError(mode)

        loop: list = []
        loop.append(loop)
        results = [object(), loop, "\udcff", Model()]
        runs = []

        def give(n):
            runs.append(n)
            return results[n]

        task = self.declare(app, kind, give)
        async with app.worker():
            jobs = [await finished(await task.enqueue(n), clock) for n in range(4)]
        # Running it again would give the same, and its effects twice.
        assert runs == [0, 1, 2, 3]
        assert [(job.state, job.reason, job.attempt) for job in jobs] == [
            ("failed", "result", 1)
        ] * 4
        assert "object has no JSON form" in jobs[0].error

    async def test_a_result_above_the_limit(self, make, clock, kind):
        app = await make(result_limit=2000)
        task = self.declare(app, kind, lambda n: "x" * n)
        async with app.worker():
            fits = await finished(await task.enqueue(1998), clock)
            large = await finished(await task.enqueue(1999), clock)
        assert (fits.state, large.state, large.reason) == ("succeeded", "failed", "result")
        assert "2,001 bytes" in large.error
        assert "result_limit" in large.error

    async def test_the_context(self, app, clock, kind):
        found = []

        def look(n):
            job = current_job()
            found.append((job.id, job.task, job.queue, job.tags, job.attempt, job.deadline))
            assert not job.cancelled
            job.check()
            assert job.fence > 0
            assert (job.failures, job.losses) == (0, 0)

        task = self.declare(app, kind, look)
        started = await task.using(tags=["a"], timeout=60).enqueue()
        async with app.worker():
            job = await finished(started, clock)
        assert job.state == "succeeded", job.error
        assert found == [(job.id, "t", "default", ("a",), 1, job.started + timedelta(seconds=60))]

    async def test_a_handler_that_cancels_itself_has_failed(self, app, clock, kind):
        def give_up(n):
            raise asyncio.CancelledError

        task = self.declare(app, kind, give_up, retry=None)
        async with app.worker():
            job = await finished(await task.enqueue(), clock)
        assert (job.state, job.reason) == ("failed", "error")
        assert "cancelled itself" in job.error


async def test_arguments_that_an_older_task_cannot_read(app, make, clock):
    newer = await make()

    @newer.task(name="t")
    async def with_two(a: int, b: int) -> None: ...

    @app.task(name="t", retry=ONCE)
    async def with_one(a: int) -> None: ...

    job = await with_two.enqueue(1, 2)
    async with app.worker():
        await finished(job, clock)
    assert job.state == "failed"
    assert "do not fit task 't'" in job.error
    assert job.trace == ""


async def test_a_failed_job_is_tried_again_later_and_later_and_then_no_more(app, clock):
    starts = []

    @app.task(retry=Backoff(max_attempts=4, base=10, factor=3, cap=50))
    async def fail() -> None:
        starts.append(clock.boot())
        raise ValueError(f"no {len(starts)}")

    async with app.worker():
        job = await fail.enqueue()
        await clock.advance(200)
    assert (job.state, (await job.refresh()).state) == ("waiting", "failed")
    assert (job.attempt, job.failures, job.losses) == (4, 4, 0)
    pauses = [later - first for first, later in pairwise(starts)]
    assert all(0 <= pause <= most + 0.01 for pause, most in zip(pauses, (10, 30, 50), strict=True))
    assert [line.outcome for line in job.history] == ["retry", "retry", "retry", "failed"]
    assert [line.error for line in job.history] == [f"ValueError: no {n}" for n in (1, 2, 3, 4)]


async def test_retry_none_is_a_single_try(app, clock):
    @app.task(retry=None)
    async def fail() -> None:
        raise ValueError

    async with app.worker():
        job = await finished(await fail.enqueue(), clock)
    assert (job.attempt, job.failures) == (1, 1)


async def test_retry_after_a_time_of_its_own_counts_as_a_failure(app, clock):
    starts = []

    @app.task(retry=Backoff(max_attempts=3))
    async def fetch() -> str:
        starts.append(clock.boot())
        if len(starts) == 1:
            raise Retry("busy over there", after="5m")
        return "fetched"

    async with app.worker():
        job = await fetch.enqueue()
        await clock.advance(299)
        await job.refresh()
        assert (job.state, job.failures, job.error) == (
            "waiting",
            1,
            "Retry: busy over there",
        )
        await clock.advance(2)
        assert await job.result() == "fetched"
        assert job.error is None
    assert starts[1] - starts[0] == pytest.approx(300, abs=0.1)


async def test_retry_uses_up_the_tries(app, clock):
    @app.task(retry=Backoff(max_attempts=2))
    async def always() -> None:
        raise Retry(after=1)

    async with app.worker():
        job = await always.enqueue()
        await clock.advance(5)
    assert (await job.refresh()).state == "failed"
    assert job.attempt == 2


@pytest.mark.parametrize("after", [-1, "soon", float("nan"), 2 * TTL_MAX])
def test_retry_after_a_time_that_is_none(after):
    with pytest.raises(ConfigError, match="after"):
        Retry(after=after)


async def test_reject_fails_at_once(app, clock):
    @app.task
    async def pay() -> None:
        raise Reject("the account is closed")

    async with app.worker():
        job = await finished(await pay.enqueue(), clock)
    assert (job.state, job.reason, job.attempt) == ("failed", "rejected", 1)
    assert "the account is closed" in job.error


async def test_history_keeps_the_last_ten(app, clock):
    @app.task(retry=Backoff(max_attempts=13, base=0))
    async def fail() -> None:
        raise ValueError

    async with app.worker():
        job = await finished(await fail.enqueue(), clock)
    assert [line.attempt for line in job.history] == list(range(4, 14))


async def test_lines_of_a_newer_version_do_not_keep_a_job_from_ending(app, store, clock):
    @app.task
    async def work() -> None: ...

    job = await work.enqueue()
    line = b'{"attempt":1,"replica":"x","started":1,"ended":2,"outcome":"paused"}\n'
    store._space.jobs.jobs[job.id].history = line
    async with app.worker():
        await finished(job, clock)
    assert job.state == "succeeded"
    assert job.record.history.startswith(line)


def test_current_job_outside_of_a_job():
    with pytest.raises(ConfigError, match="here is none"):
        current_job()


async def test_progress_arrives_and_is_gone_from_nobody(app, clock):
    reached = asyncio.Event()

    @app.task
    async def work() -> None:
        for page in range(5):
            current_job().progress(page / 10, f"page {page}")
        await reached.wait()

    async with app.worker():
        job = await work.enqueue()
        await clock.advance(0.1)
        await job.refresh()
        assert (job.progress, job.message) == (0.4, "page 4")
        reached.set()
        await finished(job, clock)


async def test_of_much_progress_only_some_is_sent(app, clock, monkeypatch):
    sent = []
    note = MemoryStore.note

    async def noted(self, replica, notes):
        sent.extend(notes)
        return await note(self, replica, notes)

    monkeypatch.setattr(MemoryStore, "note", noted)

    @app.task
    async def work() -> None:
        for step in range(1000):
            current_job().progress(step / 1000)
        await clock.sleep(1)
        current_job().progress(1)
        await clock.sleep(1)

    async with app.worker():
        job = await work.enqueue()
        await clock.advance(0.5)
        assert (await job.refresh()).progress == 0.999
        await clock.advance(2)
        assert (await job.refresh()).progress == 1
    assert len(sent) <= 3


async def test_progress_from_a_thread(app, clock):
    @app.task
    def work() -> None:
        current_job().progress(0.5, "half")
        current_job().save("first half")

    async with app.worker():
        job = await finished(await work.enqueue(), clock)
    assert (job.progress, job.message) == (0.5, "half")


@pytest.mark.parametrize("part", [-0.1, 1.1, float("nan")])
async def test_progress_that_is_none(app, clock, part):
    @app.task(retry=None)
    async def work() -> None:
        current_job().progress(part)

    async with app.worker():
        job = await finished(await work.enqueue(), clock)
    assert "progress goes from 0 to 1" in job.error


async def test_progress_that_cannot_be_sent_disturbs_nobody(app, clock, faults):
    @app.task
    async def work() -> None:
        current_job().progress(0.5)
        await clock.sleep(1)

    async with app.worker():
        faults.lose_request("note")
        job = await work.enqueue()
        await clock.advance(2)
        assert (await job.refresh()).state == "succeeded"


async def test_a_checkpoint_is_there_after_a_retry_and_after_a_loss(app, store, clock):
    found = []

    @app.task(retry=Backoff(max_attempts=2, base=0))
    async def walk() -> None:
        job = current_job()
        found.append(job.checkpoint)
        await job.save({"page": len(found)})
        assert job.checkpoint == {"page": len(found)}
        if len(found) == 1:
            raise ValueError

    job = await walk.enqueue()
    async with app.worker():
        await clock.advance(1)
    assert found == [None, {"page": 1}]
    await finished(job, clock)
    await job.requeue()
    await claim_and_die(store)
    clock.shift(10)
    await app.recover()
    async with app.worker():
        await finished(job, clock)
    assert found[2] == {"page": 2}
    assert job.losses == 1


async def test_a_checkpoint_saved_in_a_thread_is_stored_when_save_returns(app, store, clock):
    stored = []

    @app.task
    def walk() -> None:
        current_job().save([1, 2])
        stored.append(current_job().checkpoint)

    async with app.worker():
        job = await finished(await walk.enqueue(), clock)
    assert job.state == "succeeded", job.error
    [record] = await store.get([job.id])
    assert record.checkpoint == b"[1,2]"
    assert stored == [[1, 2]]


async def test_checkpoints_that_cannot_be_kept(make, clock):
    app = await make(result_limit=2000)

    @app.task
    async def walk() -> list[str]:
        problems = []
        for value in ("x" * 2000, object()):
            try:
                await current_job().save(value)
            except (TooLarge, TypeError) as error:
                problems.append(str(error))
        return problems

    async with app.worker():
        job = await finished(await walk.enqueue(), clock)
    [large, formless] = await job.result()
    assert "this checkpoint: 2,002 bytes" in large
    assert "no JSON form" in formless


async def test_saving_in_an_attempt_that_is_over_is_refused_and_stops_it(app, store, clock, seen):
    outcome = []

    @app.task
    async def walk() -> None:
        await clock.sleep(5)
        try:
            await current_job().save(1)
        except (StoreError, asyncio.CancelledError) as error:
            outcome.append(type(error))
            raise

    async with app.worker():
        job = await walk.enqueue()
        await clock.advance(1)
        [taken] = await store.get([job.id])
        back = Settlement(id=job.id, fence=taken.fence, outcome="handed back", delay=30)
        await store.settle(taken.replica, [back])
        await clock.advance(5)
        assert len(outcome) == 1
        await clock.advance(30)
        await clock.advance(6)
        assert (await job.refresh()).state == "succeeded"
        assert (job.failures, job.losses) == (0, 0)


async def test_a_time_out_goes_by_the_clock(app, clock):
    @app.task(timeout=30, retry=None)
    async def slow(seconds: float) -> float:
        await clock.sleep(seconds)
        return seconds

    async with app.worker():
        jobs = [await slow.enqueue(29), await slow.enqueue(31)]
        await clock.advance(32)
        states = [(await job.refresh()).state for job in jobs]
    assert states == ["succeeded", "failed"]
    assert jobs[1].error == "TimeoutError: it ran longer than its time-out of 30 s"


async def test_a_thread_hears_of_its_time_out_by_the_clock(app, clock, seen):
    asked = threading.Event()

    @app.task(timeout=30, retry=None)
    def slow() -> None:
        while not current_job().cancelled:
            asked.set()
        time.sleep(0.05)

    async with app.worker():
        job = await slow.enqueue()
        await clock.advance(29)
        await wait_until_async(asked.is_set)
        assert (await job.refresh()).state == "running"
        await clock.advance(5)
        await finished(job, clock)
    assert job.error == "TimeoutError: it ran longer than its time-out of 30 s"


# The same in real time.


@pytest.fixture
async def real(store):
    async with Tenure("memory://") as app:
        yield app


async def test_an_async_handler_past_its_time_out_is_cancelled_and_has_failed(real):
    unwound = []

    @real.task(timeout=0.05, retry=None)
    async def slow() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            unwound.append(True)

    async with real.worker():
        job = await slow.enqueue()
        await job.wait(5)
    assert unwound
    assert (job.state, job.reason, job.failures) == ("failed", "timeout", 1)
    assert job.error == "TimeoutError: it ran longer than its time-out of 0.05 s"


async def test_its_own_timeout_error_is_its_own(real):
    @real.task(timeout=30, retry=None)
    async def impatient() -> None:
        async with asyncio.timeout(0):
            await asyncio.sleep(1)

    async with real.worker():
        job = await (await impatient.enqueue()).wait(5)
    assert job.error == "TimeoutError: "


async def test_a_timed_out_attempt_is_tried_again(real):
    tries = []

    @real.task(retry=Backoff(max_attempts=2, base=0))
    async def slow() -> str:
        tries.append(current_job().attempt)
        if len(tries) == 1:
            await asyncio.sleep(30)
        return "in time"

    async with real.worker():
        job = await slow.using(timeout="50ms").enqueue()
        assert await job.result(5) == "in time"
    assert tries == [1, 2]


async def test_a_thread_is_told_of_its_time_out(real):
    @real.task(timeout=0.05, retry=None)
    def slow() -> None:
        until = time.monotonic() + 10
        while time.monotonic() < until:
            current_job().check()
            time.sleep(0.005)

    async with real.worker():
        job = await (await slow.enqueue()).wait(5)
    assert job.error == "TimeoutError: it ran longer than its time-out of 0.05 s"


async def test_a_thread_that_ignores_its_time_out_is_reported_and_its_result_refused(
    real, monkeypatch
):
    monkeypatch.setattr("tenure.runtime.attempt._STUCK_AFTER", 0.05)
    seen: list = []
    real.on_event(seen.append)
    go_on = threading.Event()

    @real.task(timeout=0.05, retry=None)
    def stubborn() -> str:
        go_on.wait(10)
        return "too late"

    async with real.worker():
        job = await stubborn.enqueue()
        await wait_until_async(lambda: of_kind(seen, HandlerStuck))
        assert (await job.refresh()).state == "running"
        go_on.set()
        await job.wait(5)
    assert of_kind(seen, HandlerStuck) == [HandlerStuck("stubborn", job.id, "timed out")]
    [failed] = of_kind(seen, AttemptFailed)
    assert (failed.job, failed.attempt, failed.retry_in) == (job.id, 1, None)
    assert (job.state, job.failures) == ("failed", 1)


async def test_threads_keep_to_the_concurrency_and_out_of_the_loops_way(real):
    inside: list[int] = []
    most = 0

    @real.task
    def slow() -> None:
        nonlocal most
        inside.append(1)
        most = max(most, len(inside))
        time.sleep(0.02)
        inside.pop()

    async with real.worker(concurrency=3):
        jobs = await real.enqueue_many(slow.request() for _ in range(9))
        for job in jobs:
            await job.wait(10)
    assert most == 3


async def test_context_variables_reach_threads(app, clock):
    word: ContextVar[str] = ContextVar("word", default="none")
    word.set("hello")

    @app.task
    def look() -> str:
        return word.get()

    async with app.worker():
        job = await finished(await look.enqueue(), clock)
    assert await job.result() == "hello"


async def test_lifespan_is_open_while_a_worker_is_there(make, clock):
    told = []

    @asynccontextmanager
    async def lifespan(app):
        told.append("open")
        yield {"pool": 7}
        told.append("closed")

    app = await make(lifespan=lifespan)

    @app.task
    async def look() -> int:
        return app.state["pool"]

    assert app.state is None
    async with app.worker():
        job = await finished(await look.enqueue(), clock)
    assert await job.result() == 7
    assert told == ["open", "closed"]
    assert app.state is None


async def test_lifespan_is_open_until_the_last_worker_has_left(make, clock):
    told = []

    @asynccontextmanager
    async def lifespan(app):
        told.append("open")
        yield None
        told.append("closed")

    app = await make(lifespan=lifespan)
    first, second = app.worker(), app.worker()
    await first.__aenter__()
    await second.__aenter__()
    await first.__aexit__(None, None, None)
    assert told == ["open"]
    await second.__aexit__(None, None, None)
    assert told == ["open", "closed"]


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


async def test_imports_are_done_before_it_starts(make, tmp_path, monkeypatch):
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
