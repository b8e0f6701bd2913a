"""Retries, delays and rejections after failed attempts, and their history."""

import math
from itertools import pairwise

import msgspec
import pytest

from tenure import (
    Backoff,
    ConfigError,
    Reject,
    Retry,
)
from tenure.core.durations import micros
from tenure.core.jobs.options import write_options
from tenure.core.lease_policy import TTL_MAX
from tests.jobs.replicas import finished

ONCE = Backoff(max_attempts=1)


async def test_a_failed_job_is_retried_with_growing_delays_until_its_attempts_are_used_up(
    app, clock
):
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
    for pause, most in zip(pauses, (10, 30, 50), strict=True):
        assert most / 2 - 0.01 <= pause <= most + 0.01
    assert [line.outcome for line in job.history] == ["retry", "retry", "retry", "failed"]
    assert [line.error for line in job.history] == [f"ValueError: no {n}" for n in (1, 2, 3, 4)]


async def test_by_default_a_job_outlasts_an_outage_of_some_minutes(app, clock):
    smtp_is_back = clock.boot() + 120

    @app.task
    async def send_mail() -> str:
        if clock.boot() < smtp_is_back:
            raise ConnectionError("SMTP is away")
        return "sent"

    async with app.worker():
        job = await send_mail.enqueue()
        await clock.advance(120)
        assert (await job.refresh()).state == "waiting"
        await clock.advance(130)
        assert await job.result() == "sent"


async def test_by_default_a_job_has_twenty_attempts_and_growing_pauses(app, clock):
    @app.task
    async def fail() -> None:
        raise ValueError

    job = await fail.enqueue()
    for attempt in range(1, 21):
        async with app.worker():
            await clock.advance(0.1)
        assert (await job.refresh()).attempt == attempt
        most = min(2 ** (attempt - 1), 3600)
        pause = (job.record.due - job.record.started) / 1e6
        assert attempt == 20 or most / 2 <= pause <= most + 0.1
        clock.shift(most)
    assert job.state == "failed"


async def test_a_number_is_the_number_of_retries(app, clock):
    @app.task(retry=3)
    async def fail() -> None:
        raise ValueError

    async with app.worker():
        job = await fail.enqueue()
        await clock.advance(10)
    assert (await job.refresh()).state == "failed"
    assert (job.attempt, job.failures) == (4, 4)


@pytest.mark.parametrize(
    ("retry", "attempts"), [(0, 1), (None, 1), (2, 3), (Backoff(max_attempts=2), 2)]
)
async def test_a_job_can_have_more_or_fewer_retries_than_its_task(app, clock, retry, attempts):
    @app.task(retry=4)
    async def fail() -> None:
        raise ValueError

    async with app.worker():
        job = await fail.using(retry=retry).enqueue()
        usual = await fail.using(priority=1).enqueue()
        await clock.advance(30)
    assert (await job.refresh()).attempt == attempts
    assert (await usual.refresh()).attempt == 5


async def test_changing_options_keeps_the_retries(app, clock):
    @app.task
    async def fail() -> None:
        raise ValueError

    async with app.worker():
        job = await fail.using(retry=1).using(queue="default").enqueue()
        await clock.advance(30)
    assert (await job.refresh()).attempt == 2


async def test_a_requeued_job_keeps_its_own_retries(app, clock):
    @app.task
    async def fail() -> None:
        raise ValueError

    async with app.worker():
        job = await fail.using(retry=1).enqueue()
        await clock.advance(10)
        await job.requeue()
        await clock.advance(10)
    assert (await job.refresh()).state == "failed"
    assert job.attempt == 4


async def test_unreadable_retries_of_a_job_are_replaced_by_those_of_the_task(app, store, clock):
    @app.task(retry=1)
    async def fail() -> None:
        raise ValueError

    job = await fail.using(retry=9).enqueue()
    stored = store.data.jobs.jobs[job.id]
    options = write_options(retry='{"max_attempts":"often"}')
    stored.new = msgspec.structs.replace(stored.new, options=options)
    async with app.worker():
        await clock.advance(60)
    assert (await job.refresh()).attempt == 2


@pytest.mark.parametrize("retry", [True, -1, 1.5, "3"])
def test_an_invalid_number_of_retries_is_refused(app, retry):
    with pytest.raises(ConfigError, match="retry must be how often"):
        app.task(retry=retry)(abs_of)
    task = app.task(abs_of)
    with pytest.raises(ConfigError, match="retry must be how often"):
        task.using(retry=retry)
    with pytest.raises(ConfigError, match="retry must be how often"):
        app.timer(every="1m", retry=retry)(abs_of_nothing)


def abs_of(number: int) -> int:
    return abs(number)


def abs_of_nothing() -> int:
    return 0


async def test_retry_none_means_a_single_attempt(app, clock):
    @app.task(retry=None)
    async def fail() -> None:
        raise ValueError

    async with app.worker():
        job = await finished(await fail.enqueue(), clock)
    assert (job.attempt, job.failures) == (1, 1)


async def test_raising_retry_with_a_delay_counts_as_a_failure(app, clock):
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


async def test_raising_retry_uses_up_the_attempts(app, clock):
    @app.task(retry=Backoff(max_attempts=2))
    async def always() -> None:
        raise Retry(after=1)

    async with app.worker():
        job = await always.enqueue()
        await clock.advance(5)
    assert (await job.refresh()).state == "failed"
    assert job.attempt == 2


@pytest.mark.parametrize("after", [-1, "soon", float("nan"), 2 * TTL_MAX])
def test_raising_retry_with_an_invalid_delay_is_refused(after):
    with pytest.raises(ConfigError, match="after"):
        Retry(after=after)


@pytest.mark.parametrize("after", [1e300, math.inf, math.nan, -1e300, "soon"])
async def test_a_subclass_of_retry_with_an_invalid_delay_does_not_block_its_job(
    app, store, clock, after
):
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
    # Some stores cannot keep a later instant.
    [stored] = await store.jobs.get([job.id])
    assert stored.due <= clock.wall() + micros(TTL_MAX)


async def test_raising_reject_fails_the_job_at_once(app, clock):
    @app.task
    async def pay() -> None:
        raise Reject("the account is closed")

    async with app.worker():
        job = await finished(await pay.enqueue(), clock)
    assert (job.state, job.reason, job.attempt) == ("failed", "rejected", 1)
    assert "the account is closed" in job.error


async def test_the_history_keeps_the_last_ten_attempts(app, clock):
    @app.task(retry=Backoff(max_attempts=13, base=0))
    async def fail() -> None:
        raise ValueError

    async with app.worker():
        job = await finished(await fail.enqueue(), clock)
    assert [line.attempt for line in job.history] == list(range(4, 14))


async def test_history_lines_of_a_newer_version_do_not_keep_a_job_from_ending(app, store, clock):
    @app.task
    async def work() -> None: ...

    job = await work.enqueue()
    line = b'{"attempt":1,"replica":"x","started":1,"ended":2,"outcome":"paused"}\n'
    store.data.jobs.jobs[job.id].history = line
    async with app.worker():
        await finished(job, clock)
    assert job.state == "succeeded"
    assert job.record.history.startswith(line)
