"""One run from beginning to end: let it go wrong, let it calm down, and see what is left."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import takewhile

from tenure.core.policy import WAITER_LIFE, Backoff
from tests.sim.checks.effects import check_effects, check_once, check_told
from tests.sim.checks.http import check_http
from tests.sim.checks.jobs import check_jobs
from tests.sim.checks.leases import check_leases
from tests.sim.checks.sections import check_sections
from tests.sim.checks.shop import check_shop
from tests.sim.checks.telling import (
    check_fair,
    check_told_in_time,
    check_told_of_stale_ends,
)
from tests.sim.checks.ticks import check_ticks, without_runs
from tests.sim.complaints import complaints, nobody_listening
from tests.sim.fleet import Fleet, Program
from tests.sim.history import Entry
from tests.sim.link import CALL_TIMEOUT
from tests.sim.loop import Stuck
from tests.sim.plan import FAULTS, LOSSES, Kind, Plan, dice_for
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

__all__ = ["SCENARIOS", "Outcome", "Scenario", "planned", "run"]

# How many ttls it may take until somebody dead is found, and what it had is with others.
_TTLS = 4
_LOOK_EVERY = 0.25


async def _nothing(_: Fleet) -> None:
    """Look at nothing more."""


@dataclass(frozen=True)
class Scenario:
    """What the machines of a run do."""

    program: Program
    is_done: Callable[[Fleet], bool]
    machines: tuple[int, ...]
    horizon: float
    begin: Callable[[Fleet], None] = lambda _: None
    end: Callable[[Fleet], None] = lambda _: None
    """Ask the processes to end, where they do not end by themselves."""
    setting: Callable[[], AbstractContextManager[None]] = nullcontext
    patience: float = 10.0
    """Seconds for calls that hang and for what is tried again; twice as many as were ever seen."""
    waits_for_ticks: bool = False
    """Whether it is done only after another tick: a clock that was set back delays those."""
    kind: Kind = field(default_factory=Kind)
    draw: Callable[..., Plan] | None = None
    """Draws the plan of a seed where other faults are wanted than usual."""
    tries: int = jobs.BACKOFF.max_attempts
    loss_budget: Callable[[Plan], int] = jobs.loss_budget
    aftermath: Callable[[Fleet], Awaitable[None]] = _nothing
    """What happens when all work is done, before the processes end."""
    check: Callable[[Sequence[Entry]], list[str]] = lambda _: []
    """Promises of this scenario alone."""
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
        releases.sped_up,
        kind=Kind(ttls=(10.0,), fair_share=0.7, sure=("store clock",)),
    ),
    "timers": Scenario(
        timers.program,
        timers.is_done,
        (2, 3),
        6.0,
        timers.begin,
        timers.end,
        releases.sped_up,
        waits_for_ticks=True,
        kind=Kind(set_back=-30.0),
    ),
    "http": Scenario(http.program, http.is_done, (2, 3), 5.0, http.begin, jobs.end, patience=20.0),
    "shop": Scenario(
        shop.program,
        shop.is_done,
        (3,),
        shop_plan.HOUR,
        shop_plan.begin,
        shop.end,
        patience=1200.0,  # a mail that failed for ten minutes is tried again within 17
        draw=shop_plan.draw,
        tries=Backoff().max_attempts,
        loss_budget=lambda _: 3,
        aftermath=shop.aftermath,
        check=check_shop,
        max_steps=20_000_000,
    ),
}


@dataclass
class Outcome:
    """What came of a run."""

    plan: Plan
    wrong: list[str]
    counts: Counter[str]
    history: list[Entry]


def planned(seed: int, scenario: str, faults: Collection[str] = FAULTS) -> Plan:
    """Return what a seed means."""
    shape = SCENARIOS[scenario]
    machines = dice_for("machines", scenario, seed).choice(shape.machines)
    if shape.draw is not None:
        return shape.draw(seed, machines=machines).without(set(FAULTS).difference(faults))
    return Plan.draw(
        seed, scenario, shape.kind, machines=machines, horizon=shape.horizon, faults=faults
    )


def run(plan: Plan) -> Outcome:
    """Carry out a plan, and check what happened."""
    scenario = SCENARIOS[plan.scenario]
    fleet = Fleet(plan, scenario.program)
    wrong: list[str] = []
    with complaints(wrong), scenario.setting():
        try:
            fleet.loop.run(_live(fleet, scenario, wrong), max_steps=scenario.max_steps)
        except Stuck as error:
            wrong.append(f"stuck: {error}")
    _tear_down(fleet)
    wrong += fleet.loop.complaints
    return Outcome(plan, wrong + _check(fleet), fleet.counts, fleet.history.entries)


async def _live(fleet: Fleet, scenario: Scenario, wrong: list[str]) -> None:
    await fleet.server.open()
    scenario.begin(fleet)
    patience = scenario.patience + _TTLS * fleet.plan.ttl
    all_work = patience + _work(fleet)
    if scenario.waits_for_ticks:
        all_work += _set_back(fleet.plan)
    fleet.start()
    await _within(fleet.plan.horizon, lambda: scenario.is_done(fleet))
    fleet.calm()
    if not await _within(all_work, lambda: scenario.is_done(fleet)):
        wrong.append(f"not done {all_work:g} s after all was well again: {_unfinished(fleet)}")
        return
    if not await _within(_longest_life(fleet.plan), lambda: not _strange_replicas(fleet)):
        wrong.append(f"replicas that nobody recovers: {_strange_replicas(fleet)}")
    await scenario.aftermath(fleet)
    scenario.end(fleet)
    if not await _within(patience, lambda: fleet.are_finished):
        wrong.append(f"processes do not end: {_unfinished(fleet)}")
        return
    if not await _within(_longest_life(fleet.plan), lambda: not fleet.server.leases_left()):
        wrong.append(f"leases that do not end: {fleet.server.leases_left()}")
    await _within(_longest_life(fleet.plan), lambda: not _tasks_left(fleet))
    wrong += _tasks_left(fleet)


async def _within(seconds: float, is_so: Callable[[], bool]) -> bool:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while not is_so():
        if loop.time() >= until:
            return False
        await asyncio.sleep(_LOOK_EVERY)
    return True


def _work(fleet: Fleet) -> float:
    """Return how long all jobs of a run take one after the other, each with all its tries."""
    orders: list[jobs.Order] = [
        order for machine in fleet.machines for order in machine.memory.get("orders", ())
    ]
    tries = jobs.BACKOFF.max_attempts
    return sum(one.seconds * min(tries, 1 + one.fails) for one in orders)


def _set_back(plan: Plan) -> float:
    """Return how much later ticks are due because somebody sets the clock of the store back."""
    steps = (event.amount for event in plan.events if event.what == "store clock")
    return -sum(step for step in steps if step < 0)


def _longest_life(plan: Plan) -> float:
    """Return how long something may be left on the store by whoever was cut off from it."""
    return 2 * plan.ttl + WAITER_LIFE + CALL_TIMEOUT + 5.0


def _tasks_left(fleet: Fleet) -> list[str]:
    return [
        f"{process.name} has ended, and these tasks have not: {left}"
        for process in fleet.ended
        if (left := process.lane.unfinished())
    ]


def _strange_replicas(fleet: Fleet) -> list[str]:
    """Return replicas that the store knows and that do not live."""
    living = {
        worker.replica
        for machine in fleet.machines
        if machine.process is not None and (worker := machine.memory.get("worker")) is not None
    }
    return [one for one in fleet.server.data.jobs.replicas if one not in living]


def _unfinished(fleet: Fleet) -> str:
    told = [
        f"{machine.name}: {'no process' if machine.process is None else machine.process.name}, "
        f"{machine.memory}"
        for machine in fleet.machines
    ]
    return "; ".join(told)


def _check(fleet: Fleet) -> list[str]:
    entries, counts = fleet.history.entries, fleet.counts
    scenario = SCENARIOS[fleet.plan.scenario]
    about_leases = check_leases(entries)
    about_jobs, lost_jobs = check_jobs(
        without_runs(entries),
        loss_budget=scenario.loss_budget(fleet.plan),
        tries=scenario.tries,
    )
    # A day passes at once afterwards, and a replica counts no more than 1,000 missed ticks.
    hour = takewhile(lambda entry: entry.what != "aftermath", entries)
    about_ticks, seen = check_ticks(
        hour,
        declared_for=releases.DECLARED_FOR,
        declared_anew_after=releases.DECLARED_ANEW_AFTER,
        forgotten_after=releases.FORGOTTEN_AFTER,
    )
    counts.update(seen)
    counts["expired leases"] += about_leases.expired
    counts["lost jobs"] += lost_jobs
    counts["lost writes"] += fleet.server.lost_writes
    counts["losses"] += len(LOSSES.intersection(fleet.plan.faults))
    counts["steps"] += fleet.loop.steps
    counts["fair weather"] += fleet.plan.is_fair
    counts.update(fleet.struck)
    counts.update(f"runs with {what}" for what, times in fleet.struck.items() if times)
    for entry in entries:
        _count(counts, entry)
    _count_after_steps(counts, entries)
    return [
        *about_leases.wrong,
        *about_jobs,
        *scenario.check(entries),
        *check_http(entries),
        *check_effects(entries),
        *about_ticks,
        *check_once(entries),
        *check_told(entries),
        *check_told_in_time(entries),
        *check_told_of_stale_ends(entries),
        *(() if _may_overlap(entries) else check_sections(entries)),
        *(check_fair(entries, about_leases.left_behind) if fleet.plan.is_fair else ()),
    ]


def _may_overlap(entries: Iterable[Entry]) -> bool:
    """Whether the store has given something away that somebody still had."""
    return any(
        entry.what in ("emptied", "fell back") or (entry.what == "stepped" and entry.seconds > 0)
        for entry in entries
    )


def _count(counts: Counter[str], entry: Entry) -> None:
    match entry.what:
        case "renewed" | "released" | "noted" if not entry.ok:
            counts["refused stale calls"] += 1
        case "settled" if entry.answer == "lost":
            counts["refused stale calls"] += 1
        case "settled" if entry.outcome == "retry":
            counts["retries"] += 1
        case "settled" if entry.answer == "settled":
            counts["settlements"] += 1
        case "effect" if not entry.ok:
            counts["refused stale effects"] += 1
        case "moved" if entry.outcome in _MOVED:
            counts[_MOVED[entry.outcome]] += 1
        case "claimed" if entry.attempt > 1:
            counts["claims"] += 1
            counts["second attempts"] += 1
        case "beside" if entry.limit:
            counts["jobs beside a backlog"] += 1
        case what if what in _COUNTED:
            counts[_COUNTED[what]] += 1


def _count_after_steps(counts: Counter[str], entries: Iterable[Entry]) -> None:
    """Count how the store's clock was set, and what went on after that."""
    direction = ""
    for entry in entries:
        if entry.what == "stepped":
            direction = "ahead" if entry.seconds > 0 else "back"
            counts[f"steps {direction}"] += 1
        elif direction and entry.what in ("claimed", "ticked"):
            counts[f"{_COUNTED[entry.what]} after a step {direction}"] += 1


_COUNTED = {
    "granted": "grants",
    "recovered": "recoveries",
    "claimed": "claims",
    "ticked": "ticks",
}
_MOVED = {"stale": "ticks won by others", "skipped": "skipped ticks"}


def _tear_down(fleet: Fleet) -> None:
    """Take apart what has not ended. Whatever that runs, nobody is listening any more."""
    processes = [*fleet.graveyard, *fleet.ended]
    processes += [one.process for one in fleet.machines if one.process is not None]
    fleet.loop.close()
    with nobody_listening():
        for lane in [fleet.loop.world, *(process.lane for process in processes)]:
            lane.is_dead = True
            for task in lane.unfinished():
                task._log_destroy_pending = False  # type: ignore[attr-defined] # noqa: SLF001
                coroutine = task.get_coro()
                with suppress(BaseException):
                    assert coroutine is not None
                    coroutine.close()
