"""`once`: one success per name and version, over all replicas."""

import asyncio
import threading

import pytest

from tenure import AcquireTimeout, ConfigError, LeaseLost, OnceFailed
from tenure.app import engine_of


class Body:
    """Something to run once; counts how often it was."""

    def __init__(self, clock, lasts: float = 0, error: Exception | None = None) -> None:
        self.runs = 0
        self.inside = 0
        self._clock = clock
        self._lasts = lasts
        self.error = error

    async def __call__(self) -> None:
        self.inside += 1
        assert self.inside == 1
        try:
            await self._clock.sleep(self._lasts)
            self.runs += 1
            if self.error is not None:
                raise self.error
        finally:
            self.inside -= 1


@pytest.fixture
def body(clock) -> Body:
    return Body(clock, lasts=5)


async def test_a_body_runs_once(app, rival, clock):
    body = Body(clock)
    assert await app.once("backfill", body)
    assert not await app.once("backfill", body)
    assert not await rival.once("backfill", body)
    assert body.runs == 1


async def test_a_new_version_runs_again(app, clock):
    body = Body(clock)
    assert await app.once("backfill", body, version=1)
    assert await app.once("backfill", body, version=2)
    assert not await app.once("backfill", body, version=1)
    assert body.runs == 2


async def test_callers_at_the_same_time_wait_for_the_one_run(app, rival, clock, body):
    calls = [asyncio.create_task(user.once("backfill", body)) for user in (app, rival) * 5]
    await clock.advance(4)
    assert not any(call.done() for call in calls)
    await clock.advance(100)
    assert sorted(await asyncio.gather(*calls)) == [False] * 9 + [True]
    assert body.runs == 1


async def test_a_failure_is_raised_in_all_waiting_calls_and_a_later_call_tries_again(
    app, rival, clock, body
):
    body.error = ValueError("no disk")
    calls = [asyncio.create_task(user.once("backfill", body)) for user in (app, rival) * 3]
    await clock.advance(10)
    for call in calls:
        with pytest.raises(OnceFailed, match="no disk"):
            await call
    assert body.runs == 1
    body.error = None
    later = asyncio.create_task(rival.once("backfill", body))
    await clock.advance(10)
    assert await later
    assert body.runs == 2


async def test_a_replica_that_is_cut_off_half_way_is_followed_by_another(app, rival, faults, clock):
    body = Body(clock, lasts=60)
    first = asyncio.create_task(app.once("backfill", body, ttl=10))
    await clock.advance(1)
    second = asyncio.create_task(rival.once("backfill", body, ttl=10))
    faults.lose_request("renew", times=1000)
    faults.lose_request("release", times=1000)
    await clock.advance(120)
    with pytest.raises(LeaseLost):
        await first
    assert await second
    assert body.runs == 1


async def test_a_result_that_could_not_be_stored_under_the_lease_does_not_count(app, rival, clock):
    async def body() -> None:
        [lease] = await app.locks()
        await engine_of(app).store.leases.release([lease])

    with pytest.raises(LeaseLost, match="before its result could be stored"):
        await app.once("backfill", body)
    assert await rival.once("backfill", Body(clock))


async def test_a_lost_reply_to_the_mark_changes_nothing(app, rival, faults, clock):
    body = Body(clock)
    faults.lose_reply("mark", times=2)
    call = asyncio.create_task(app.once("backfill", body))
    await clock.advance(3)
    assert await call
    assert not await rival.once("backfill", body)


async def test_a_cancelled_caller_keeps_the_lock_until_its_thread_has_ended(app, rival):
    begun, end, inside = threading.Event(), threading.Event(), []

    def body() -> None:
        inside.append(len(inside) + 1)
        begun.set()
        end.wait(20)
        inside.append(0)

    first = asyncio.create_task(app.once("migrate", body))
    await asyncio.to_thread(begun.wait, 20)
    first.cancel()
    second = asyncio.create_task(rival.once("migrate", body))
    await asyncio.sleep(0.1)
    assert inside == [1]
    end.set()
    with pytest.raises(asyncio.CancelledError):
        await first
    await asyncio.wait([second], timeout=20)
    assert await second
    assert inside == [1, 0, 3, 0]


async def test_names_and_versions_do_not_mix(app, clock):
    body = Body(clock)
    assert await app.once("a:1", body, version=2)
    assert await app.once("a", body, version="1")
    with pytest.raises(ConfigError, match="version"):
        await app.once("a", body, version="1:2")


async def test_waiting_may_be_limited(app, rival, clock, body):
    first = asyncio.create_task(app.once("backfill", body))
    await clock.advance(1)
    second = asyncio.create_task(rival.once("backfill", body, wait=1))
    await clock.advance(2)
    with pytest.raises(AcquireTimeout):
        await second
    await clock.advance(5)
    assert await first


async def test_on_every_store(real_app, real_rival):
    rival = await real_rival()
    ran: list[int] = []

    async def body() -> None:
        ran.append(1)
        await asyncio.sleep(0.05)

    results = await asyncio.gather(*(user.once("it", body) for user in (real_app, rival) * 4))
    assert sorted(results) == [False] * 7 + [True]
    assert ran == [1]
    assert await rival.once("it", body, version="two")
