"""A worker whose record had expired and was revived: what came meanwhile starts at once."""

from tenure.core.records import SOON


async def test_what_came_while_the_record_had_expired_starts_with_the_next_beat(app, clock, faults):
    @app.task
    async def work() -> None: ...

    async with app.worker():
        await clock.advance(1)
        faults.lose_request("beat", times=1_000_000)
        await clock.advance(12)  # longer than the ttl
        job = await work.enqueue()
        await clock.advance(0.1)
        assert (await job.refresh()).attempt == 0  # an expired replica gets nothing
        faults.heal()
        # A lost beat is repeated about every second.
        await clock.advance(1.2)
        assert (await job.refresh()).state == "succeeded"
        assert SOON > 1.2
