"""Fail-overs of Redis under load: the primary is killed, paused or cut off, another takes over.

Behind Sentinel and in a cluster. Workers, a producer and holders of locks go on by themselves; what
they leave behind outside the store is compared with what is in it at the end.

A primary that is cut off goes on acknowledging what its replicas never see, so that its successor
has lost a tail: jobs that were accepted, leases that are held, fences that were given. That is
allowed (grade C), and counted. Everything else is a violation.
"""

import asyncio
import time
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Literal, Protocol

from tenure import JobNotFound
from tests.chaos.tally import Tally
from tests.process.crowd import Crowd
from tests.process.job_ledger import Line
from tests.process.ledger import Section
from tests.process.orders import boot
from tests.process.site import Site
from tests.process.workshop import Workshop, opened
from tests.rig.failover import ClusterGroup, Group, SentinelGroup
from tests.rig.processes import Child, Fleet
from tests.rig.sizes import SIZE

Blow = Literal["kill", "pause", "cut off"]
BLOWS: tuple[Blow, ...] = ("kill", "cut off", "pause")

NAMESPACE = "chaos"
WORKERS = {"replica_ttl": 1, "loss_budget": 50, "concurrency": 4}
TTL = 1.0
LONG_STAY = 0.8
LOCK_TTL = 2.0
# A primary that is cut off gets so long to acknowledge writes that no other server gets.
ALONE_FOR = 0.5
# Asynchronous replication is this far behind at most, on a machine of any load.
BEHIND = 1.0
# After that a replaced primary is left: a look every two seconds, a time-out, a connect.
SERVED_ON = 8.0
# So many jobs are accepted before each strike, outside of what a fail-over may lose.
QUIET_JOBS = 20
# A worker that is not woken looks about every second.
PUSHED_WITHIN = 0.3
# Two processes may write down in another order what the store has given them in quick succession.
JITTER = 0.5


class _Size(Protocol):
    @property
    def steps(self) -> int: ...


async def fail_over(tally: Tally, folder: Path, size: _Size) -> None:
    """Let each kind of group fail over `size.steps` times; the entry point of `tests.chaos`."""
    blows = list(islice(cycle(BLOWS), size.steps))
    for name, group in (("sentinel", SentinelGroup()), ("cluster", ClusterGroup())):
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        with group:
            await storm(group, blows, tally, place)


@dataclass
class Strike:
    """One fail-over: when the primary was struck, and when another was there."""

    blow: Blow
    began: float
    over: float = 0.0
    is_served_on: bool = False
    """Whether the old primary lives on and acknowledges writes that no other server gets."""

    @property
    def ends(self) -> float:
        """When nothing of what is accepted can be lost any more."""
        return self.over + (SERVED_ON if self.is_served_on else JITTER)

    def may_have_lost(self, accepted: float) -> bool:
        """Say whether what was accepted at that time may be gone."""
        return self.began - BEHIND <= accepted <= self.ends


def lost_by_none(strikes: Iterable[Strike], accepted: Iterable[Line]) -> list[Line]:
    """Return what was accepted outside of every fail-over: it has to be there."""
    earlier = list(strikes)
    return [
        line for line in accepted if not any(strike.may_have_lost(line.boot) for strike in earlier)
    ]


async def storm(group: Group, blows: Sequence[Blow], tally: Tally, folder: Path) -> None:
    """Strike one primary of a group after the other, and account for everything."""
    async with _working(group, folder) as scene:
        for blow in blows:
            await scene.strike(blow, tally)
        await scene.end(tally)
        await account(scene, tally)


@dataclass
class Scene:
    """A group of servers and all processes that use it."""

    group: Group
    shop: Workshop
    workers: list[Child]
    producer: Child
    stale: Child
    rival: Child
    short: Crowd
    long: Crowd
    strikes: list[Strike] = field(default_factory=list)
    torn: bool = False
    """Whether `stale` holds what only a primary that was cut off knows of."""

    async def strike(self, blow: Blow, tally: Tally) -> None:
        """Have the primary replaced, and see that all go on by themselves."""
        await asyncio.to_thread(self.group.heal)  # from the strike before
        await self.shop.until(self._is_quiet, "jobs are accepted that may not be lost")
        # The nodes of a cluster have ways of their own to see that one is there: it is killed then.
        is_served_on = blow == "cut off" and not isinstance(self.group, ClusterGroup)
        strike = Strike(blow, boot(), is_served_on=is_served_on)
        self.strikes.append(strike)
        await asyncio.to_thread(self._replace_primary, blow)
        strike.over = boot()
        if blow == "cut off":
            await asyncio.to_thread(self._end_torn_hold, tally)
        await self.all_go_on()
        took = round(1000 * (boot() - strike.over))
        tally.add("failovers")
        tally.add(f"fail-overs by {blow}")
        tally.counts["slowest to go on, ms"] = max(tally.counts["slowest to go on, ms"], took)
        tally.progress(
            f"{type(self.group).__name__}, {blow}: another primary after "
            f"{strike.over - strike.began:.1f} s, all at work again {took / 1000:.1f} s later"
        )

    def _replace_primary(self, blow: Blow) -> None:
        old = self.group.primary(NAMESPACE)
        if blow == "kill":
            old.kill()
        elif blow == "pause":
            old.pause()
        else:
            began = time.monotonic()
            self.group.cut_off(old)
            self.stale.send("acquire")
            self.stale.expect("held", SIZE.patience)
            # Later than that it may have come from the new primary, on a machine that stood still.
            self.torn = time.monotonic() - began < ALONE_FOR
            time.sleep(ALONE_FOR)
            if not self.strikes[-1].is_served_on:
                old.kill()
        self.group.wait_for_successor(old, NAMESPACE)

    def _is_quiet(self) -> bool:
        """Say whether there is enough since the last strike that the next one must not lose."""
        since = self.strikes[-1].ends if self.strikes else 0.0
        sure = [line for line in self.shop.lines("accepted") if since < line.boot < boot() - BEHIND]
        return len(sure) >= QUIET_JOBS

    def _end_torn_hold(self, tally: Tally) -> None:
        """See a lock given to another one by the new primary, and its old holder told."""
        if not self.torn:
            self.stale.send("release")
            return
        tally.add("stale holders")
        self.rival.send("acquire")
        newer = self.rival.expect("held", SIZE.patience)["fence"]
        older = self.stale.expect("lost", SERVED_ON + LOCK_TTL)["fence"]
        tally.add("stale holders told")
        if newer <= older:
            tally.violate(f"fence {newer} was given after {older}")
        self.rival.send("release")
        self.rival.expect("released", SIZE.patience)

    async def all_go_on(self) -> None:
        """Wait until the workers, the producer and the holders have all done something more."""
        accepted = len(self.shop.lines("accepted"))
        await self.shop.until(self._works_a_job_off, "a job is done")
        more = lambda: len(self.shop.lines("accepted")) > accepted + 5  # noqa: E731 - short
        await self.shop.until(more, "the producer goes on")
        await self.short.each_works_on()
        await self.long.each_works_on()
        for child in [*self.workers, self.producer]:
            assert child.running, child.story()

    async def _works_a_job_off(self) -> bool:
        """Have a job done; false if it went with a primary that was about to step down."""
        job = await self.shop.tasks.nap.enqueue(0)
        try:
            await self.shop.finished(job)
        except JobNotFound:
            return False
        return True

    async def end(self, tally: Tally) -> None:
        """See that workers are woken by push, and end all but them: they stay for what is left."""
        if (latency := await self.shop.pick_up_latency()) > PUSHED_WITHIN:
            tally.violate(f"wake-ups are not pushed any more: a job waits {latency:.2f} s")
        self.producer.send("end")
        assert await self.shop.exited(self.producer) == 0, self.producer.story()
        await self.short.dismiss()
        await self.long.dismiss()


@asynccontextmanager
async def _working(group: Group, folder: Path) -> AsyncIterator[Scene]:
    with Fleet() as fleet:
        site = Site("redis", group.url, NAMESPACE, fleet, has_outages=True)
        async with opened(site, folder) as shop:
            crowds = [_crowd(site, folder / name, stay) for name, stay in _STAYS.items()]
            producer = site.start("job_producer", shop.ledger.path, 1)
            holders = asyncio.to_thread(site.start_holders, LOCK_TTL, "torn", "torn")
            hired = shop.hired(2, **WORKERS)
            gathered = [crowd.gather(2) for crowd in crowds]
            workers, pair, *_ = await asyncio.gather(hired, holders, *gathered)
            scene = Scene(group, shop, workers, producer, *pair, *crowds)
            await scene.all_go_on()
            yield scene
            await asyncio.to_thread(_stop, workers)
        await site.end()
        _close(fleet)


_STAYS = {"short": 0.01, "long": LONG_STAY}


def _crowd(site: Site, folder: Path, stay: float) -> Crowd:
    folder.mkdir(exist_ok=True)
    options = ("--patient", "--ttl", TTL, "--stay", stay, "--sink", folder / "sink")
    return Crowd(site, folder, folder.name, *options)


def _close(fleet: Fleet) -> None:
    """End all children without printing their stories, which nothing needs after a success."""
    for child in fleet.children:
        child.close()
    fleet.children.clear()


def _stop(workers: Iterable[Child]) -> None:
    for worker in workers:
        worker.terminate()
    for worker in workers:
        assert worker.wait(SIZE.patience) == 0, worker.story()


# The account.


async def account(scene: Scene, tally: Tally) -> None:
    """Compare what all processes wrote down with what the store has in the end."""
    await _account_for_jobs(scene, tally)
    for crowd in (scene.short, scene.long):
        _account_for_holders(crowd.sections(), tally)
    tally.expect_none(
        *("repeated fences", "stale effects accepted", "lost beyond the tail", "doubled")
    )
    tally.expect_none("invented")
    cuts = tally.counts["fail-overs by cut off"]
    tally.demand("forgotten with the tail", cuts)
    tally.demand("stale holders told", cuts // 2)
    tally.demand("grants", 20 * len(scene.strikes))
    tally.demand("accepted outside of fail-overs", QUIET_JOBS * len(scene.strikes))


async def _account_for_jobs(scene: Scene, tally: Tally) -> None:
    shop = scene.shop
    accepted = {line.job: line for line in shop.lines("accepted")}
    stored = await _stored(shop, tally)
    ended = Counter(line.job for line in shop.lines("ended"))
    gone = [line for id_, line in accepted.items() if id_ not in stored]
    tally.add("accepted", len(accepted))
    tally.add("succeeded", sum(state == "succeeded" for state in stored.values()))
    tally.add("forgotten with the tail", len(gone))
    tally.add("lost", sum(line.job not in ended for line in gone))
    # Its end was in the tail, so it had to run again, under a higher fence.
    tally.add("run again", sum(ended[id_] > 1 for id_ in stored))
    sure = lost_by_none(scene.strikes, accepted.values())
    tally.add("accepted outside of fail-overs", len(sure))
    for line in lost_by_none(scene.strikes, gone):
        tally.add("lost beyond the tail")
        tally.violate(f"accepted outside of every fail-over, and gone: {line}")
    for id_, state in stored.items():
        if state != "succeeded":
            tally.violate(f"job {id_} has {state}")
        elif id_ not in ended:
            tally.violate(f"job {id_} has succeeded without an effect")
    offered = {line.number for line in shop.lines("offered")}
    ran = shop.lines("began")
    tally.add("invented", sum(line.number not in offered for line in ran if line.number))
    _compare_fences([(line.job, line.boot, line.fence) for line in ran], tally)


async def _stored(shop: Workshop, tally: Tally) -> dict[str, str]:
    """Return the state of each job of the producer, once all of them have ended, each once."""
    states: dict[str, str] = {}
    cursor = None
    while True:
        page = await shop.app.jobs(task="count", limit=1000, cursor=cursor)
        await shop.finished(*page)
        for job in page:
            states[job.id] = job.state
            ends = sum(attempt.outcome == "succeeded" for attempt in job.history)
            tally.add("doubled", max(0, ends - 1))
        if (cursor := page.cursor) is None:
            return states


def _compare_fences(grants: Iterable[tuple[str, float, int]], tally: Tally) -> None:
    """No fence of a job or a lock comes twice, and later ones are higher."""
    by_key: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for key, at, fence in grants:
        by_key[key].append((at, fence))
    for key, fences in by_key.items():
        times = Counter(fence for _, fence in fences)
        tally.add("repeated fences", sum(number - 1 for number in times.values()))
        highest, recent = 0, deque[tuple[float, int]]()
        for at, fence in sorted(fences):
            while recent and recent[0][0] < at - JITTER:
                highest = max(highest, recent.popleft()[1])
            recent.append((at, fence))
            if fence < highest:
                tally.violate(f"{key}: fence {fence} was given after {highest}")


def _account_for_holders(sections: list[Section], tally: Tally) -> None:
    tally.add("grants", len(sections))
    tally.add("expiries while held", sum(section.lost for section in sections))
    tally.add("stale writes refused", sum(section.refused for section in sections))
    _compare_fences([(section.name, section.start, section.fence) for section in sections], tally)
    ordered = sorted(sections, key=lambda older: older.start)
    for index, older in enumerate(ordered):
        newer = [other for other in ordered[index + 1 :] if other.start > older.start + JITTER]
        for other in newer[:1]:
            _judge_pair(older, other, tally)


def _judge_pair(older: Section, newer: Section, tally: Tally) -> None:
    """Look at a holder and the next one, who came while it was still inside, or did not."""
    if newer.accepted and older.accepted and newer.accepted < older.accepted:
        tally.add("stale effects accepted")
        tally.violate(f"the sink took {older} after {newer}")
    if older.end and older.end > newer.start + TTL + SERVED_ON:
        tally.violate(f"not told: {older}, while {newer}")
