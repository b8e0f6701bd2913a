"""Election: one leader at a time, in terms with rising fences."""

import asyncio

from tenure import Tenure
from tenure.app import engine_of


async def lead(app: Tenure, fences: list[int], clock, term_lasts: float) -> None:
    async for term in app.election("indexer", ttl=10).terms():
        async with term:
            fences.append(term.fence)
            await clock.sleep(term_lasts)


async def test_terms_follow_each_other_with_rising_fences(app, rival, clock):
    fences: list[int] = []
    candidates = [
        asyncio.create_task(lead(candidate, fences, clock, 20)) for candidate in (app, rival)
    ]
    await clock.advance(200)
    for candidate in candidates:
        candidate.cancel()
    await asyncio.gather(*candidates, return_exceptions=True)
    assert len(fences) >= 5
    assert fences == sorted(set(fences))


async def test_a_lost_leadership_ends_the_block_and_the_loop_goes_on(app, clock):
    fences: list[int] = []
    leading = asyncio.create_task(lead(app, fences, clock, 10_000))
    await clock.advance(1)
    [lease] = await app.locks()
    await engine_of(app).store.leases.release([lease])
    await clock.advance(20)
    assert not leading.done()
    assert len(fences) == 2
    assert fences[0] < fences[1]
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)


async def test_the_leadership_is_given_back_only_after_the_block(app, rival, clock):
    stopped = asyncio.Event()

    async def slow_to_stop() -> None:
        async for term in app.election("indexer", ttl=10).terms():
            async with term:
                try:
                    await clock.sleep(10_000)
                finally:
                    await stopped.wait()

    leading = asyncio.create_task(slow_to_stop())
    await clock.advance(1)
    leading.cancel()
    await clock.advance(1)
    assert await rival.election("indexer").leader() is not None
    stopped.set()
    await asyncio.gather(leading, return_exceptions=True)
    assert await rival.election("indexer").leader() is None


async def test_an_election_sits_out_an_outage(app, faults, clock):
    fences: list[int] = []
    faults.lose_request("acquire", times=60)
    leading = asyncio.create_task(lead(app, fences, clock, 10_000))
    await clock.advance(10)
    assert fences == []
    await clock.advance(120)
    assert len(fences) == 1
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)


async def test_leaving_the_loop_resigns(app, rival, clock):
    async for term in app.election("indexer").terms():
        assert not term.is_lost
        await term.resign()
        break
    assert await rival.election("indexer").leader() is None


async def test_observe_tells_each_change(app, rival, clock):
    seen: list[str | None] = []

    async def watch() -> None:
        async for leader in rival.election("indexer").observe():
            who = leader.meta["who"] if leader else None
            seen.append(who)

    watching = asyncio.create_task(watch())
    await clock.advance(2)
    for who in ("ann", "bob"):
        async for _ in app.election("indexer", meta={"who": who}).terms():
            await clock.advance(3)
            break
        await clock.advance(3)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert seen == [None, "ann", None, "bob", None]
