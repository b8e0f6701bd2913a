"""Workers that die: their jobs run again soon, and none of it counts as a failure."""

import pytest

from tests.process.orders import boot
from tests.process.workshop import Workshop, on_each
from tests.rig.processes import Child
from tests.rig.sizes import SIZE

TTL = 1.0
RUNNING = 5
# A machine that stands still may spoil one round; a bug spoils all of them.
ROUNDS = 8  # tries on a machine that may be busy with other tests

PROMISES = [pytest.param({"replica_ttl": TTL}, 3.0, id="short")]
if SIZE.name == "soak":
    PROMISES.append(pytest.param({}, 15.0, id="default"))


@pytest.mark.parametrize(("settings", "within"), PROMISES)
async def test_jobs_of_a_killed_worker_run_again_soon(
    shops: list[Workshop], settings: dict[str, float], within: float
):
    async def scenario(shop: Workshop) -> None:
        await check_takeover(shop, settings, within)

    await on_each(shops, scenario)


async def check_takeover(shop: Workshop, settings: dict[str, float], within: float) -> None:
    """Kill a worker beside an idle one; in one of some rounds it must be quick, in all right."""
    took: list[float] = []
    [victim] = await shop.hired(**settings)
    while not took or (min(took) > within and len(took) < ROUNDS):
        heir, seconds = await takeover(shop, victim, settings)
        took.append(seconds)
        victim = heir
    assert min(took) <= within, f"{shop.site.family}: {took}"


async def takeover(
    shop: Workshop, victim: Child, settings: dict[str, float]
) -> tuple[Child, float]:
    """Kill a worker in the middle of its jobs; return who took over, and after how long."""
    gate = shop.gate()
    requests = [shop.tasks.stay.request(str(gate)) for _ in range(RUNNING)]
    jobs = await shop.app.enqueue_many(requests)
    await shop.written("began", *jobs, pid=victim.pid)
    [heir] = await shop.hired(**settings)
    killed = boot()
    victim.kill()
    again = await shop.written("began", *jobs, pid=heir.pid)
    gate.touch()
    await shop.finished(*jobs)
    for job in jobs:
        assert (job.state, job.attempt, job.losses, job.failures) == ("succeeded", 2, 1, 0)
        assert [attempt.outcome for attempt in job.history] == ["lost", "succeeded"]
        assert await job.result() == heir.pid
    recovery = await shop.heard(heir, "JobsRecovered", lambda event: jobs[0].id in event["waiting"])
    assert recovery["failed"] == recovery["cancelled"] == recovery["unreadable"] == []
    return heir, max(line.boot for line in again) - killed


async def test_a_cancel_survives_the_death_of_the_worker(shops: list[Workshop]):
    async def scenario(shop: Workshop) -> None:
        [victim] = await shop.hired(replica_ttl=TTL)
        gate = shop.gate()
        deaf = await shop.tasks.stay_blocking.enqueue(str(gate))
        other = await shop.tasks.stay.enqueue(str(gate))
        await shop.written("began", deaf, other)
        assert await deaf.cancel("not needed")
        await shop.hired(replica_ttl=TTL)
        victim.kill()
        await shop.written("began", other, attempt=2)
        gate.touch()
        await shop.finished(deaf, other)
        assert (deaf.state, deaf.reason, deaf.attempt) == ("cancelled", "not needed", 1)
        assert len(shop.lines("began", deaf)) == 1
        assert other.state == "succeeded"

    await on_each(shops, scenario)


async def test_a_job_that_kills_its_worker_cannot_take_others_along(shops: list[Workshop]):
    await on_each(shops, poisoned)


async def poisoned(shop: Workshop) -> None:
    """Restart workers like a supervisor while a job kills them, each time beside others."""
    budget = 2
    settings = {"replica_ttl": TTL, "loss_budget": budget}
    workers = await shop.hired(**settings)
    neighbours = await shop.app.enqueue_many(shop.tasks.nap.request(1.5) for _ in range(4))
    await shop.written("began", *neighbours)
    poison = await shop.tasks.poison.enqueue()
    await shop.written("began", poison)
    workers.append(shop.hire(**settings))
    deaths = 0

    async def failed_for_good() -> bool:
        nonlocal deaths
        for worker in [worker for worker in workers if not worker.running]:
            deaths += 1
            assert worker.wait() == 3, worker.story()
            workers.remove(worker)
            workers.append(shop.hire(**settings))
            more = [shop.tasks.nap.request(0.5) for _ in range(4)]
            neighbours.extend(await shop.app.enqueue_many(more))
        return (await poison.refresh()).is_finished

    await shop.until(failed_for_good, "the poison has failed")
    assert (poison.state, poison.reason) == ("failed", "lost")
    assert (poison.losses, poison.failures) == (1 + budget, 0)
    assert len(shop.lines("began", poison)) == deaths == 1 + budget
    await shop.finished(*neighbours)
    assert {job.state for job in neighbours} == {"succeeded"}
    assert any(job.losses for job in neighbours)
    assert max(job.losses for job in neighbours) <= budget
