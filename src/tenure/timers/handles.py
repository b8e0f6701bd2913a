"""Timers and schedules as operators see them: how they stand, and what became of their ticks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from tenure.core.durations import Duration, micros, seconds
from tenure.core.model import check_name, storable
from tenure.core.policy import TTL_MAX
from tenure.core.records import BATCH_MAX
from tenure.core.schedules import (
    DECISIONS_MAX,
    DECLARED_FOR,
    EVERYTHING,
    Advance,
    Advanced,
    Decision,
    ScheduleRecord,
)
from tenure.core.ticking import Definition, Plan, bounds, next_due, preview, run_of
from tenure.core.views import as_datetime
from tenure.errors import ConfigError, StoreError, TimerBusy, TimerNotFound
from tenure.jobs import Job, Jobs
from tenure.stores.contract import Store
from tenure.timers.standing import Pause, TickOutcome, TickRecord, TimerInfo

__all__ = ["TimerHandle", "Timers", "freeze"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
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
        """Return how it stands. Raises TimerNotFound, as all calls here do."""
        record = await self._record()
        [info] = await _described(self._timers, [record])
        return info

    async def pause(self, reason: str = "", until: datetime | Duration | None = None) -> None:
        """Skip its ticks until an instant, for so long, or until `resume`. Runs go on."""
        await self._current("pause")
        if not await freeze(self._timers.store, self.name, reason, until):
            raise self._not_found()

    async def resume(self) -> bool:
        """End a pause; ticks that came meanwhile stay skipped. False if there was none."""
        await self._current("resume")
        return await self._timers.store.thaw(self.name)

    async def trigger(self) -> Job[Any]:
        """Have it run once, now, also while it is paused. The next tick comes as ever.

        A worker that has timers takes the run from its queue. Raises TimerBusy if the limits of
        the timer do not allow one more.
        """
        store = self._timers.store
        record = await self._current("trigger")
        now = await store.now()
        move = _trigger(record, self._timers.jobs.new_id(), now)
        answer = await store.advance(move)
        if answer.outcome != "done" or answer.run is None:
            raise TimerBusy(self.name, await self._why(answer))
        return self._timers.jobs.handle(answer.run)

    async def preview(self, number: int = 5) -> list[datetime]:
        """Return when the next ticks are due.

        With after="completion" that is one at most: those after it follow from when runs end.
        """
        if not 1 <= number <= _PREVIEW_MAX:
            msg = f"preview shows from 1 to {_PREVIEW_MAX:,} ticks, not {number!r}."
            raise ConfigError(msg)
        record = await self._record()
        definition = _definition(record)
        if definition.rests:
            [info] = await _described(self._timers, [record])
            return [] if info.next is None else [info.next]
        now = await self._timers.store.now()
        ticks = preview(definition, max(record.cursor, now), number)
        return [as_datetime(due) for _, due in ticks]

    async def history(self, number: int = 20) -> list[TickRecord]:
        """Return what became of the last ticks, newest first; at most 100 are remembered."""
        if not 1 <= number <= DECISIONS_MAX:
            msg = f"history shows from 1 to {DECISIONS_MAX} records, not {number!r}."
            raise ConfigError(msg)
        store = self._timers.store
        await self._record()
        decisions = await store.decisions(self.name, limit=number)
        runs = await _runs_of(self._timers, decisions)
        return [_tick_record(one, runs.get(one.job)) for one in decisions]

    async def _record(self) -> ScheduleRecord:
        found = await self._timers.store.schedules([self.name])
        if not found or self.name == EVERYTHING:
            raise self._not_found()
        return found[0]

    async def _current(self, verb: str) -> ScheduleRecord:
        """Return it, unless it was renamed: then nothing that is done to it has an effect."""
        record = await self._record()
        if record.successor:
            msg = f"{self.name!r} is called {record.successor!r} now; {verb} that."
            raise ConfigError(msg)
        return record

    async def _why(self, answer: Advanced) -> str:
        """Say why it was not triggered, and which runs are in the way."""
        if answer.outcome not in {"held", "skipped"}:
            return "its definition has just changed"
        decisions = await self._timers.store.decisions(self.name, limit=_LOOKED_AT)
        runs = (await _runs_of(self._timers, decisions)).values()
        unfinished = [f"{one.id}, {one.state}" for one in runs if not one.record.finished]
        named = f": job {'; job '.join(unfinished)}" if unfinished else ""
        return f"it has as many unfinished runs as it may ({answer.reason}){named}"

    def _not_found(self) -> TimerNotFound:
        return TimerNotFound(self.name, is_declared_here=self.name in self._timers)


class Timers:
    """`app.timers`: those declared here, and by name those that any process has declared."""

    def __init__(self, plans: Mapping[str, Plan], reach: Callable[[], tuple[Store, Jobs]]) -> None:
        self._plans = plans
        self._reach = reach

    def __getitem__(self, name: str) -> TimerHandle:
        return TimerHandle(self, check_name(name, "timer name"))

    def __iter__(self) -> Iterator[str]:
        """Go through the names of those that are declared here."""
        return iter(sorted(self._plans))

    def __len__(self) -> int:
        return len(self._plans)

    def __contains__(self, name: object) -> bool:
        return name in self._plans

    async def all(self) -> list[TimerInfo]:
        """Return how all that the store knows stand, by name."""
        return await _described(self, await self.store.schedules(limit=_REACHABLE))

    async def frozen(self) -> Pause | None:
        """Return the freeze of all of them, if there is one that has not ended."""
        found = await self.store.schedules([EVERYTHING])
        return _pause(found[0], await self.store.now()) if found else None

    @property
    def store(self) -> Store:
        return self._reach()[0]

    @property
    def jobs(self) -> Jobs:
        return self._reach()[1]


async def freeze(store: Store, name: str, reason: str, until: datetime | Duration | None) -> bool:
    """Skip the ticks of a schedule, or of EVERYTHING; False if there is no such schedule."""
    end = await _instant_of(until, store)
    return await store.freeze(name, until=end, reason=storable(reason, _REASON_MAX))


async def _instant_of(until: datetime | Duration | None, store: Store) -> int | None:
    """Return the store's instant that is meant by a point in time or a length from now."""
    if until is None:
        return None
    if not isinstance(until, datetime):
        return await store.now() + micros(seconds(until, "until", maximum=TTL_MAX))
    if until.utcoffset() is None:
        msg = (
            f"until={until.isoformat()} has no time zone. Use datetime.now(UTC) + ..., give it a "
            "tzinfo, or say for how long: until='2h'."
        )
        raise ConfigError(msg)
    return (until - _EPOCH) // timedelta(microseconds=1)


def _definition(record: ScheduleRecord) -> Definition:
    found = _readable(record)
    if found is None:
        msg = (
            f"how {record.name!r} was declared cannot be read: a newer version of Tenure may have "
            "written it. Use that version."
        )
        raise StoreError(msg)
    return found


def _readable(record: ScheduleRecord) -> Definition | None:
    try:
        return msgspec.json.decode(record.definition, type=Definition)
    except (ValueError, RecursionError):
        return None


def _trigger(record: ScheduleRecord, id_: str, now: int) -> Advance:
    definition = _definition(record)
    plan = Plan(name=record.name, definition=definition)
    run = run_of(plan, id_, tick=now, due=now, previous=record.last_run)
    limit, _ = bounds(definition)
    return Advance(
        id=id_,
        name=record.name,
        revision=record.revision,
        to=now,
        due=0,
        # Whoever takes it may not know this timer, and has to give it back unharmed.
        run=replace(run, rerun=True),
        # A trigger is turned away, rather than recorded as a tick that was skipped.
        limit=None if limit is None else replace(limit, full="hold"),
        forced=True,
    )


async def _described(timers: Timers, records: list[ScheduleRecord]) -> list[TimerInfo]:
    """Return in words for users how schedules stand."""
    now = await timers.store.now()
    latest = [one.latest for one in records if one.latest is not None]
    runs = await _runs_of(timers, latest, {one.last_job for one in records})
    return [_info(one, now, runs) for one in records]


async def _runs_of(
    timers: Timers, decisions: list[Decision], others: Collection[str] = ()
) -> dict[str, Job[Any]]:
    """Return the runs that were decided on, as far as they are still there, by id."""
    ids = [*dict.fromkeys(id_ for id_ in (*(one.job for one in decisions), *others) if id_)]
    found = [
        await timers.store.get(ids[first : first + BATCH_MAX])
        for first in range(0, len(ids), BATCH_MAX)
    ]
    return {job.id: timers.jobs.handle(job) for some in found for job in some if job is not None}


def _info(record: ScheduleRecord, now: int, runs: Mapping[str, Job[Any]]) -> TimerInfo:
    latest = record.latest
    definition = _readable(record)
    return TimerInfo(
        name=record.name,
        kind="unknown" if definition is None else definition.kind,
        rule="" if definition is None else _words(definition),
        tz="UTC" if definition is None else getattr(definition.rule, "zone", "UTC"),
        task="" if definition is None else definition.run.task,
        next=None if definition is None else _next(record, definition, now, runs),
        previous=as_datetime(record.last_run) if record.last_run else None,
        running=record.live,
        pause=_pause(record, now),
        is_declared=record.declared + micros(DECLARED_FOR) > now and not record.successor,
        declared=as_datetime(record.declared),
        renamed_to=record.successor,
        latest=None if latest is None else _tick_record(latest, runs.get(latest.job)),
        revision=record.revision,
    )


def _words(definition: Definition) -> str:
    rule = definition.rule.words()
    return f"{rule.removeprefix('every ')} after each run" if definition.rests else rule


def _next(
    record: ScheduleRecord, definition: Definition, now: int, runs: Mapping[str, Job[Any]]
) -> datetime | None:
    if not definition.rests:
        tick = next_due(definition, max(record.cursor, now))
        return None if tick is None else as_datetime(tick[1])
    last = runs.get(record.last_job)
    if last is not None and not last.record.finished:
        return None
    ended = 0 if last is None else last.record.finished
    due = max(record.cursor, ended) + micros(definition.rest)
    return as_datetime(max(due, now))


def _pause(record: ScheduleRecord, now: int) -> Pause | None:
    freeze = record.freeze
    if freeze is None or (freeze.until is not None and freeze.until <= now):
        return None
    until = None if freeze.until is None else as_datetime(freeze.until)
    return Pause(since=as_datetime(freeze.since), until=until, reason=freeze.reason)


def _tick_record(decision: Decision, job: Job[Any] | None) -> TickRecord:
    ran: dict[str, Any] = {}
    outcome: TickOutcome = decision.outcome
    reason = decision.reason
    if job is not None:
        record = job.record
        outcome, reason = job.state, job.reason or decision.reason
        ran = {
            "started": as_datetime(record.started) if record.started else None,
            "finished": as_datetime(record.finished) if record.finished else None,
            "attempts": job.attempt,
            "error": job.error or "",
        }
    return TickRecord(
        outcome=outcome,
        reason=reason,
        nominal=as_datetime(decision.last),
        first=as_datetime(decision.first),
        ticks=decision.ticks,
        decided=as_datetime(decision.at),
        job=decision.job,
        replica=decision.replica,
        **ran,
    )
