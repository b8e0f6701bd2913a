"""A worker whose record expired and was revived: jobs enqueued meanwhile start at once."""

from tenure.core.jobs.records import SOON


async def test_jobs_enqueued_while_the_replica_had_expired_start_with_its_next_heartbeat(
    app, clock, faults
):
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


async def test_ticks_continue_with_the_next_heartbeat_after_a_claim_found_its_worker_dead(
    app, clock, faults, monkeypatch
):
    """As in a fail-over: for a moment the answering server does not have the record."""
    ticks: list[float] = []

    @app.timer(every="1s")
    async def tick() -> None:
        ticks.append(clock.boot())

    async def forgets(*_: object) -> None:
        return None

    clock.shift(0.5)  # so that no claim is concurrent with a tick, whose run would interfere
    async with app.worker() as worker:
        await clock.advance(3)
        with monkeypatch.context() as forgetful:
            forgetful.setattr(app._store.jobs, "claim", forgets)
            while worker.replica is not None:
                await clock.advance(0.1)
            faults.lose_request("beat", times=1_000_000)
            await clock.advance(3)
        faults.heal()
        await clock.advance(2)
        ticks.clear()
        await clock.advance(3)
        assert worker.replica is not None
    assert len(ticks) >= 2
