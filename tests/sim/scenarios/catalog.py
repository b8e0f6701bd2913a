"""All scenarios by name, with the program of their machines and the rules of their runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from tenure.core.jobs.retry_policy import Backoff
from tests.sim.checks.shop import check_shop
from tests.sim.fleet import Fleet, Program
from tests.sim.history import Entry
from tests.sim.plan import Plan, Profile
from tests.sim.scenarios import (
    clocks,
    fleets,
    http,
    jobs,
    leases,
    releases,
    shop,
    shop_plan,
    timers,
)

__all__ = ["SCENARIOS", "Scenario"]


async def _nothing(_: Fleet) -> None:
    """Skip the aftermath."""


@dataclass(frozen=True)
class Scenario:
    """What the machines of a run do, and when their work is done."""

    program: Program
    is_done: Callable[[Fleet], bool]
    machines: tuple[int, ...]
    """The numbers of machines that a seed may choose."""
    horizon: float
    """When all faults end, in seconds of virtual time."""
    begin: Callable[[Fleet], None] = lambda _: None
    end: Callable[[Fleet], None] = lambda _: None
    """Asks the processes to end, where they do not end by themselves."""
    setting: Callable[[], AbstractContextManager[None]] = nullcontext
    """Patches that are in force during the run."""
    recovery_time: float = 10.0
    """Seconds for hanging calls and retries after the last fault; twice the longest ever seen."""
    waits_for_ticks: bool = False
    """Whether it is done only after another tick. A clock that was set back delays that tick."""
    profile: Profile = field(default_factory=Profile)
    draw: Callable[..., Plan] | None = None
    """Draws the plan of a seed, for scenarios that need other faults than `Plan.draw` draws."""
    tries: int = jobs.BACKOFF.max_attempts
    loss_budget: Callable[[Plan], int] = jobs.loss_budget
    aftermath: Callable[[Fleet], Awaitable[None]] = _nothing
    """Runs when all work is done, before the processes end."""
    check: Callable[[Sequence[Entry]], list[str]] = lambda _: []
    """Checks the promises of this scenario alone."""
    max_steps: int = 200_000


SCENARIOS = {
    "locks": Scenario(leases.few, leases.is_done, (2,), 3.0),
    "leases": Scenario(leases.program, leases.is_done, (2, 2, 3), 5.0),
    "jobs": Scenario(jobs.program, jobs.is_done, (2, 3), 6.0, jobs.begin, jobs.end),
    "fleet": Scenario(fleets.program, fleets.is_done, (3,), 6.0, fleets.begin, jobs.end),
    "clocks": Scenario(
        clocks.program,
        clocks.is_done,
        (3,),
        30.0,
        clocks.begin,
        jobs.end,
        releases.short_lifetimes,
        profile=Profile(ttls=(10.0,), mild_share=0.7, sure=("store clock",)),
    ),
    "timers": Scenario(
        timers.program,
        timers.is_done,
        (2, 3),
        6.0,
        timers.begin,
        timers.end,
        releases.short_lifetimes,
        waits_for_ticks=True,
        profile=Profile(set_back=-30.0),
    ),
    "http": Scenario(
        http.program, http.is_done, (2, 3), 5.0, http.begin, jobs.end, recovery_time=20.0
    ),
    "shop": Scenario(
        shop.program,
        shop.is_done,
        (3,),
        shop_plan.HOUR,
        shop_plan.begin,
        shop.end,
        recovery_time=1200.0,  # a mail that failed for ten minutes is tried again within 17
        draw=shop_plan.draw,
        tries=Backoff().max_attempts,
        loss_budget=lambda _: 3,
        aftermath=shop.aftermath,
        check=check_shop,
        max_steps=20_000_000,
    ),
}
