"""Timers and schedules as operators see them: their state, and the outcomes of their ticks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from tenure.core.durations import Until, instant
from tenure.core.jobs.options import read_options, write_options
from tenure.core.jobs.view import as_datetime
from tenure.core.lease_policy import TTL_MAX
from tenure.core.leases import check_name, storable
from tenure.core.schedules.definition import Definition, Plan
from tenure.core.schedules.documents import (
    EVERYTHING,
    Decision,
    Schedule,
    decision_in,
    read_definition,
)
from tenure.core.schedules.records import DECISIONS_MAX
from tenure.core.schedules.steps import bounds, later, preview, run_of
from tenure.core.schedules.ticks import Advance, Advanced
from tenure.core.why import Why, why_timer
from tenure.errors import ConfigError, StoreError, TimerBusy, TimerNotFound
from tenure.jobs import Job, Jobs, read_surroundings
from tenure.runtime.timers.scheduling import Scheduling
from tenure.runtime.timers.stored_schedules import StoredSchedules, read_schedules
from tenure.stores.contract import Store
from tenure.timers.description import described, pause_of, runs_of, views_of
from tenure.timers.ended_runs import EndedRuns
from tenure.timers.facts import read_facts
from tenure.timers.info import TickRecord, TimerInfo, TimerPause, TimerViews
from tenure.timers.tick_records import tick_record

__all__ = ["TimerHandle", "Timers"]

_PREVIEW_MAX = 1000
_REASON_MAX = 1000
_REACHABLE = 10_000
# How many decisions are searched for the runs that are in the way of a trigger.
_LOOKED_AT = 20


class TimerHandle:
    """One timer or schedule, by its name; it need not be declared in this process."""

    def __init__(self, timers: Timers, name: str) -> None:
        self._timers = timers
        self.name = name

    def __repr__(self) -> str:
        return f"<Timer {self.name!r}>"

    async def info(self) -> TimerInfo:
        """Return its state. Raises TimerNotFound, as all calls here do."""
        [info] = await described(self._timers.store, self._timers.jobs, await self._read())
        return info

    async def pause(self, *, until: Until = None, reason: str = "") -> None:
        """Skip its ticks until an instant, for so long, or until `resume`. Runs go on."""
        _, now = await self._current("pause")
        if not await _pause(self._timers.store, self.name, until, reason, now):
            raise self._not_found()

    async def resume(self) -> bool:
        """End a pause; ticks that came meanwhile stay skipped. False if there was none."""
        await self._current("resume")
        return await Scheduling(self._timers.store).thaw(self.name)

    async def reset(self) -> bool:
        """Let it tick from now on, after the store's clock was ahead when it ticked last.

        Until then `info().ahead` says for how long it is silent. Ticks that have run ahead of their
        time may run again when it comes, so this is never done by itself. Workers notice within
        20 s. False if its last tick does not lie in the store's future.
        """
        await self._current("reset")
        return await Scheduling(self._timers.store).reset(self.name)

    async def trigger(self) -> Job[Any]:
        """Have it run once, now, also while it is paused. The next tick comes as ever.

        A worker that has timers takes the run from its queue. Raises TimerBusy if the limits of
        the timer do not allow one more.
        """
        schedule, now = await self._current("trigger")
        move = _trigger(schedule, self._timers.jobs.new_id(), now)
        answer = await Scheduling(self._timers.store).advance(move)
        if answer.outcome != "done" or answer.run is None:
            raise TimerBusy(self.name, await self._why(answer))
        jobs = self._timers.jobs
        jobs.report_enqueued(answer.run)
        return jobs.handle(answer.run)

    async def preview(self, number: int = 5) -> list[datetime]:
        """Return when the next ticks are due.

        With after="completion" that is one at most: those after it follow from when runs end.
        """
        if not 1 <= number <= _PREVIEW_MAX:
            msg = f"preview shows from 1 to {_PREVIEW_MAX:,} ticks, not {number!r}."
            raise ConfigError(msg)
        stored = await self._read()
        [schedule] = stored.all
        definition = _definition(schedule)
        if definition.rests:
            [info] = await described(self._timers.store, self._timers.jobs, stored)
            return [] if info.next is None else [info.next]
        ticks = preview(definition, later(schedule, definition, stored.now), number)
        return [as_datetime(due) for _, due in ticks]

    async def history(self, number: int = 20) -> list[TickRecord]:
        """Return the outcomes of the last ticks, newest first; at most 100 are kept."""
        if not 1 <= number <= DECISIONS_MAX:
            msg = f"history shows from 1 to {DECISIONS_MAX} records, not {number!r}."
            raise ConfigError(msg)
        await self._read()
        decisions = await self._decisions(number)
        runs = await runs_of(self._timers.store, self._timers.jobs, decisions)
        return [tick_record(decision, runs.get(decision.job)) for decision in decisions]

    async def why(self) -> Why:
        """Return why it ticks or does not: one sentence and the next step.

        Needs a handful of calls to the store.
        """
        store = self._timers.store
        stored = await read_schedules(store, [self.name, EVERYTHING], lines=_LOOKED_AT)
        if self.name == EVERYTHING or not any(each.name == self.name for each in stored.all):
            raise self._not_found()
        around = await read_surroundings(store, needs_queues=False)
        [facts] = await read_facts(store, self._timers.plans, stored)
        return why_timer(facts, around)

    async def _read(self) -> StoredSchedules:
        stored = await read_schedules(self._timers.store, [self.name])
        if not stored.all or self.name == EVERYTHING:
            raise self._not_found()
        return stored

    async def _current(self, verb: str) -> tuple[Schedule, int]:
        """Return it, and the time, unless it was renamed: then what is done has no effect."""
        stored = await self._read()
        [schedule] = stored.all
        if successor := schedule.standing.successor:
            msg = f"{self.name!r} is called {successor!r} now; {verb} that."
            raise ConfigError(msg)
        return schedule, stored.now

    async def _decisions(self, number: int) -> list[Decision]:
        stored = await self._timers.store.schedules.read([self.name], lines=number)
        read = (decision_in(line) for record in stored.records for line in record.lines)
        return [decision for decision in read if decision is not None]

    async def _why(self, answer: Advanced) -> str:
        """Return why it was not triggered, and which runs are in the way."""
        if answer.outcome not in {"held", "skipped"}:
            return "its definition has just changed. Try again"
        decisions = await self._decisions(_LOOKED_AT)
        runs = (await runs_of(self._timers.store, self._timers.jobs, decisions)).values()
        unfinished = [run for run in runs if not run.record.finished]
        named = "; ".join(f"job {run.id}, {run.state}" for run in unfinished)
        advice = "Try again later"
        if any(run.state == "waiting" for run in unfinished):
            advice = (
                "A run that waits needs a worker that has this timer: start one, or cancel the run"
            )
        why = f"it has as many unfinished runs as it may ({answer.reason})"
        return f"{why}: {named}. {advice}" if named else f"{why}. {advice}"

    def _not_found(self) -> TimerNotFound:
        return TimerNotFound(self.name, is_declared_here=self._timers.is_declared_here(self.name))


class Timers:
    """The timers of an app: those declared here, and by name those of any process."""

    def __init__(self, plans: Mapping[str, Plan], reach: Callable[[], tuple[Store, Jobs]]) -> None:
        """`reach` returns the store and the jobs of the open app, or raises StoreError."""
        self.plans = plans
        self._reach = reach

    def handle(self, name: str) -> TimerHandle:
        return TimerHandle(self, check_name(name, "timer name"))

    def is_declared_here(self, name: str) -> bool:
        return name in self.plans

    async def infos(self) -> list[TimerInfo]:
        """Return the state of every timer that the store knows, by name."""
        return await described(
            self.store, self.jobs, await read_schedules(self.store, limit=_REACHABLE)
        )

    async def views(
        self,
        names: Sequence[str] | None = None,
        *,
        limit: int,
        lines: int,
        previews: int,
        ended: EndedRuns | None = None,
    ) -> TimerViews:
        """Return the first `limit` timers by name, or those named, with history and next ticks.

        `ended` has the runs that an earlier call has read.
        """
        stored = await read_schedules(self.store, names, limit=limit, lines=lines)
        frozen = await read_schedules(self.store, [EVERYTHING])
        timers = [schedule for schedule in stored.all if schedule.name != EVERYTHING]
        everything = frozen.all[0] if frozen.all else None
        stored = StoredSchedules(stored.now, timers)
        views = await views_of(
            self.store,
            self.jobs,
            stored,
            everything,
            plans=self.plans,
            previews=previews,
            ended=ended or EndedRuns(self.store.clock),
        )
        pause = None if everything is None else pause_of(everything, stored.now)
        return TimerViews(timers=views, pause=pause)

    async def pause(self, until: Until, reason: str) -> None:
        """Skip the ticks of all timers."""
        now = (await self.store.ping()).now
        await _pause(self.store, EVERYTHING, until, reason, now)

    async def resume(self) -> bool:
        """End the pause of all timers; False if there is none."""
        return await Scheduling(self.store).thaw(EVERYTHING)

    async def paused(self) -> TimerPause | None:
        """Return the pause of all timers, unless it has ended."""
        stored = await read_schedules(self.store, [EVERYTHING])
        return pause_of(stored.all[0], stored.now) if stored.all else None

    @property
    def store(self) -> Store:
        return self._reach()[0]

    @property
    def jobs(self) -> Jobs:
        return self._reach()[1]


async def _pause(store: Store, name: str, until: Until, reason: str, now: int) -> bool:
    """Skip the ticks of a schedule, or of EVERYTHING; False if there is no such schedule."""
    end = None if until is None else instant(until, now, maximum=TTL_MAX)
    reason = storable(reason, _REASON_MAX)
    return await Scheduling(store).freeze(name, until=end, reason=reason)


def _definition(schedule: Schedule) -> Definition:
    definition = read_definition(schedule.charter)
    if definition is None:
        msg = (
            f"Cannot read how {schedule.name!r} was declared: a newer version of Tenure may have "
            "written it. Use that version."
        )
        raise StoreError(msg)
    return definition


def _trigger(schedule: Schedule, id_: str, now: int) -> Advance:
    definition = _definition(schedule)
    plan = Plan(name=schedule.name, definition=definition)
    run = run_of(plan, id_, tick=now, due=now, previous=schedule.last_run)
    # The worker that takes it may not know this timer, and has to give it back unharmed.
    declared = read_options(run.options)
    options = write_options(retry=declared.retry, headers=declared.headers)
    limit, _ = bounds(definition)
    return Advance(
        id=id_,
        name=schedule.name,
        ruler=schedule.record.ruler,
        revision=schedule.standing.revision,
        to=now,
        due=0,
        run=replace(run, options=options),
        # A trigger is turned away, rather than recorded as a tick that was skipped.
        limit=None if limit is None else replace(limit, full="hold"),
        forced=True,
    )
