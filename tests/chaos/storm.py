"""One storm on one store: a fleet under all kinds of weather, and the account of it."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

from tenure.core.jobs.loss_policy import LOSS_DELAY_MAX
from tests.chaos import judge, leftovers
from tests.chaos.brood import Brood, Member
from tests.chaos.diary import read_diaries
from tests.chaos.places import Place
from tests.chaos.roles import Order
from tests.chaos.tally import Tally
from tests.chaos.weather import Weather
from tests.process.orders import boot
from tests.rig.processes import Fleet
from tests.rig.sizes import SIZE, Storm
from tests.rig.wait import wait_until_async
from tests.sim.history import Entry

TTL = 1.0
# Where nothing is to go wrong, a machine that stalls for seconds costs no process its lease.
_FAIR_TTL = 60.0
LOCKS = ("lock-0", "lock-1", "lock-2", "pool-0", "pool-1")
LIMITS = {"pool-0": 2, "pool-1": 3}
_LOOK_EVERY = 1.0
_SHOW_EVERY = 5.0
# A loaded machine may need longer until enough has happened, but not for ever.
_LONGEST = 6.0


@dataclass
class Scene:
    """The processes on one store, from their start to the account."""

    place: Place
    tally: Tally
    fleet: Fleet
    brood: Brood
    seed: int
    orders: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """What is ordered of each role beside the usual."""
    ttl: float = TTL
    _number: "count[int]" = field(default_factory=lambda: count(1))

    def start(self, role: str) -> Member:
        """Start one more process; every second one reaches the store over the network."""
        number = next(self._number)
        return self.brood.start(
            Order(
                role=role,
                by=f"{role}-{number}",
                url=self.place.far_url if number % 2 else self.place.url,
                namespace=self.place.namespace,
                folder=str(self.place.folder),
                names=list(LOCKS),
                limits=LIMITS,
                ttl=self.ttl,
                tasks=["toil", "grind", "grind", *(["book"] if self.place.has_tables else [])],
                **self.orders.get(role, {}),  # type: ignore[arg-type]
            )
        )

    def replace(self, member: Member) -> None:
        """Start another one in the place of one that is gone."""
        self.start(member.order.role)

    def gather(self, size: Storm) -> None:
        """Start all processes."""
        for role, number in (
            ("worker", size.workers),
            ("producer", size.producers),
            ("holder", size.holders),
        ):
            for _ in range(number):
                self.start(role)

    def entries(self) -> list[Entry]:
        return read_diaries(self.place.folder)

    async def dismiss(self, *roles: str) -> None:
        """Have these end in an orderly way, also those that are only just being started."""
        await self.brood.all_born()
        leaving = self.brood.living(*roles)
        for member in leaving:
            self.brood.terminate(member)
        for member in leaving:
            code = await self.brood.ended(member)
            if code != 0:
                self.tally.violate(
                    f"{member.by} ended with {code} after SIGTERM:\n{member.story()}"
                )

    async def settle_down(self) -> None:
        """End all who ask for work and for locks, let the workers finish, and end them too."""
        await self.dismiss("producer", "holder")
        async with self.place.app() as app:

            async def nothing_to_do() -> bool:
                queues = await app.queues()
                return not any(queue.running or queue.oldest is not None for queue in queues)

            async def all_done() -> bool:
                await wait_until_async(nothing_to_do, 3 * SIZE.patience)
                return not await app.queues()

            try:
                # A job that took several processes with it is due only after a longer pause.
                await wait_until_async(all_done, LOSS_DELAY_MAX)
            except AssertionError:
                self.tally.violate(f"not finished long after the storm: {await app.queues()}")
            await self.dismiss("worker")

    async def account(self, *, clock_was_set: bool = False, without: str = "") -> None:
        """Compare the ledgers with the store, and look for what was left behind.

        Jobs of the task `without` are judged elsewhere.
        """
        entries = await asyncio.to_thread(self.entries)
        async with self.place.app() as app:
            await leftovers.check_store(self.place, app, self.tally)
            stored = [job for job in await judge.stored_jobs(app) if job.task != without]
        judge.judge_locks(entries, self.tally, clock_was_set=clock_was_set)
        judge.judge_effects(entries, self.tally)
        judge.judge_ticks(entries, self.tally)
        judge.Books(entries, stored, await self.place.booked()).judge(self.tally)
        leftovers.check_processes(self.brood, self.tally)
        await leftovers.check_connections(self.place, self.tally)
        await leftovers.check_logs(self.place.folder, self.tally)


@asynccontextmanager
async def scene(
    place: Place,
    tally: Tally,
    seed: int,
    *,
    fenced: bool = True,
    env: Mapping[str, str] | None = None,
    orders: Mapping[str, Mapping[str, object]] | None = None,
    ttl: float = TTL,
) -> AsyncIterator[Scene]:
    """Prepare a store and its sink; `env` is given to all processes but the sink."""
    async with place.app():  # makes the tables, before many do so at once
        await place.make_books()
    fleet = Fleet()
    try:
        options = () if fenced else ("--unfenced",)
        sink = fleet.start("-m", "tests.chaos.sink", str(place.folder), *options)
        brood = Brood(fleet, place.folder, env)
        await asyncio.to_thread(sink.expect, "ready", SIZE.patience)
        await brood.ready()
        yield Scene(place, tally, fleet, brood, seed, orders or {}, ttl)
    finally:
        for child in reversed(fleet.children):
            await asyncio.to_thread(child.close)


async def storm(
    place: Place, tally: Tally, size: Storm, seed: int, *, faults: bool = True, fenced: bool = True
) -> None:
    """Let a fleet go through a storm; the tally tells what it came to."""
    began = boot()
    if fenced:
        demand(place, tally, size)
    else:
        tally.demand("stale effects accepted", 1)
        tally.demand("doubled", 1)
    ttl = TTL if faults else _FAIR_TTL
    async with scene(place, tally, seed, fenced=fenced, ttl=ttl) as here:
        here.gather(size)
        over = asyncio.Event()
        weather = Weather(
            place, here.brood, tally, size, random.Random(seed), ttl, replace=here.replace
        )
        raging = asyncio.ensure_future(weather.rage(over) if faults else over.wait())
        try:
            await long_enough(here, tally, size.seconds, raging, hopeless=not faults)
        finally:
            over.set()
            await raging
        tally.progress("the storm is over")
        await here.settle_down()
        tally.progress("everybody has left")
        await here.account()
    tally.seconds += boot() - began


def demand(place: Place, tally: Tally, size: Storm) -> None:
    """Set the floors: well below what is usual, and far above what fair weather comes to."""

    def usual(every: float, share: float) -> int:
        return max(1, int(share * size.seconds / every))

    tally.demand("kills", usual(size.kill_every, 0.6))
    tally.demand("pauses", usual(size.pause_every, 0.5))
    tally.demand("terminations", usual(size.terminate_every, 0.5))
    if place.server is not None:
        tally.demand("restarts", usual(size.restart_every, 0.5))
        tally.demand("proxy faults", usual(size.network_every, 0.5))
        tally.demand("connections cut", usual(size.network_every, 0.5))
        tally.demand("messages held up", usual(size.network_every, 0.5))
    tally.demand("accepted", int(5 * size.seconds))
    tally.demand("grants", int(5 * size.seconds))
    tally.demand("ticks", int(0.3 * size.seconds))
    tally.demand("recovered", usual(size.kill_every, 0.1))
    tally.demand("expiries while held", usual(size.pause_every, 0.1))
    tally.demand("stale writes refused", usual(size.pause_every, 0.1))
    tally.demand("stale holders told", usual(size.pause_every, 0.05))
    tally.demand("stale ends refused", usual(size.pause_every, 0.1))
    # Where connections break as well, a short storm may see none that gets as far as the fence.
    if place.has_tables and (place.server is None or size.seconds >= 60):
        tally.demand("stale transactions refused", usual(size.pause_every, 0.05))


async def long_enough(
    here: Scene,
    tally: Tally,
    seconds: float,
    raging: "asyncio.Future[object]",
    *,
    hopeless: bool = False,
) -> None:
    """Return after so many seconds, or later: when enough has happened, if there is hope for it."""
    began, looked, shown = boot(), 0.0, 0.0
    while not raging.done():
        await asyncio.sleep(_LOOK_EVERY)
        passed = boot() - began
        tally.seconds = passed
        # Reading everything costs more, the longer it goes on.
        if passed - looked < max(_LOOK_EVERY, seconds / 20):
            continue
        looked = passed
        so_far = await asyncio.to_thread(_so_far, here, tally)
        if passed - shown >= _SHOW_EVERY:
            tally.progress(f"{passed:.0f} s: {so_far.line()}")
            shown = passed
        enough = not so_far.missed()
        if passed >= seconds and (enough or hopeless or passed >= _LONGEST * seconds):
            break
    tally.seconds = 0.0
    if raging.done():
        await raging  # it has broken down itself


def _so_far(here: Scene, tally: Tally) -> Tally:
    """Return a tally as if the storm were over; nothing is said about jobs yet."""
    so_far = Tally(tally.part, tally.counts.copy(), tally.floors)
    entries = here.entries()
    judge.judge_locks(entries, so_far)
    judge.judge_effects(entries, so_far)
    judge.judge_ticks(entries, so_far)
    so_far.add("accepted", sum(entry.what == "accepted" for entry in entries))
    so_far.add("doubled", sum(many - 1 for many in judge.effects_of_jobs(entries).values()))
    so_far.add("recovered", sum(len(entry.ids) for entry in entries))
    return so_far
