import asyncio
from pathlib import Path

from tenure import Tenure
from tests.process import history
from tests.process.crowd import Crowd
from tests.process.ledger import Counter
from tests.process.site import Site
from tests.rig.sizes import SIZE

PLACES = 3


async def test_a_lock_admits_one_at_a_time_while_processes_die(site: Site, tmp_path: Path):
    counter = tmp_path / "counter"
    crowd = Crowd(site, tmp_path, "storm", "--counter", counter)
    await crowd.gather(SIZE.processes)
    await crowd.lose_some(SIZE.seconds)
    await crowd.each_works_on()
    await crowd.dismiss()

    sections = crowd.sections()
    history.check_one_at_a_time(sections)
    history.check_fences_rise(sections)
    history.check_counted(sections, Counter(counter).read())
    check_shares(crowd)


async def test_a_lock_admits_one_of_those_who_grab_it_at_the_same_instant(
    site: Site, tmp_path: Path
):
    """A line of waiters keeps their requests apart. Without one, requests fall together."""
    counter = tmp_path / "counter"
    crowd = Crowd(site, tmp_path, "rush", "--counter", counter, "--eager", "--stay", 0)
    await crowd.gather(SIZE.processes)
    await asyncio.sleep(SIZE.seconds / 2)
    await crowd.dismiss()

    sections = crowd.sections()
    history.check_one_at_a_time(sections)
    history.check_fences_rise(sections)
    history.check_counted(sections, Counter(counter).read())


async def test_a_semaphore_admits_no_more_than_its_limit_while_processes_die(
    site: Site, tmp_path: Path
):
    crowd = Crowd(site, tmp_path, "storm", "--limit", PLACES, "--stay", 0.02)
    await crowd.gather(SIZE.processes)
    async with site.app() as app:
        observing = asyncio.ensure_future(observe(app))
        await crowd.lose_some(SIZE.seconds)
        await crowd.each_works_on()
        observing.cancel()
        numbers = await observing
    await crowd.dismiss()

    assert max(numbers) == PLACES, "more than allowed, or never as many as allowed"
    sections = crowd.sections()
    assert history.most_at_once(sections) == PLACES
    assert len({section.fence for section in sections}) == len(sections)
    check_shares(crowd)


async def observe(app: Tenure) -> list[int]:
    """Count holders until cancelled; return the counts."""
    numbers: list[int] = []
    try:
        while True:
            numbers.append(sum(not lease.waiting for lease in await app.locks("storm")))
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        return numbers


def check_shares(crowd: Crowd) -> None:
    """Waiters take turns, so no member that stayed had many more sections than another."""
    shares = [
        sum(section.end is not None for section in member.sections()) for member in crowd.steady
    ]
    assert min(shares) >= 0.5 * max(shares), shares
