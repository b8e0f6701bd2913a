"""What a failed attempt leads to: tries, waits, refusals, and the history of them."""

import math
from itertools import pairwise

import pytest

from tenure import (
    Backoff,
    ConfigError,
    Reject,
    Retry,
)
from tenure.core.policy import TTL_MAX
from tests.jobs.replicas import finished

ONCE = Backoff(max_attempts=1)


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


@pytest.mark.parametrize("after", [1e300, math.inf, math.nan, -1e300, "soon"])
async def test_a_subclass_of_retry_with_an_odd_pause_holds_up_no_job(app, clock, after):
    class Busy(Retry):
        def __init__(self) -> None:
            super().__init__("busy")
            self.after = after

    @app.task
    async def odd() -> None:
        raise Busy

    @app.task
    async def other() -> str:
        return "done"

    async with app.worker():
        job, neighbour = await odd.enqueue(), await other.enqueue()
        await clock.advance(5)
        assert await neighbour.result(0) == "done"
        assert (await job.refresh()).state in ("waiting", "failed")


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
