"""Schedules in memory: the specification the other stores are compared with."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tenure.core.durations import micros
from tenure.core.records import JobRecord, NewJob
from tenure.core.schedules import (
    DECISIONS_MAX,
    EVERYTHING,
    Advance,
    Advanced,
    Bound,
    Decision,
    Freeze,
    Moved,
    Planted,
    Planting,
    ScheduleRecord,
)
from tenure.core.states import FINISHED
from tenure.stores.memory.job_world import Job
from tenure.stores.memory.jobs import Jobs
from tenure.stores.memory.schedule_world import Schedule, ScheduleSpace

__all__ = ["Schedules"]

_NEVER = 2**63


class Schedules(Jobs):
    """The schedule part of the contract."""

    async def plant(self, schedules: Sequence[Planting]) -> list[Planted]:
        with self._lock:
            return [self._plant(one) for one in schedules]

    def _plant(self, planting: Planting) -> Planted:
        now = self.clock.wall()
        schedule = self._schedules.schedules.get(planting.name) or self._make(planting, now)
        heir = self._heir_of(schedule)
        yields = heir is not schedule and heir.name not in planting.renamed_from
        if yields and heir.is_declared(now):
            return _planted(schedule, 0, now)
        before = schedule.calendar
        if not schedule.rules(planting.digest):
            if planting.digest in schedule.digests and schedule.is_declared(now):
                return _planted(schedule, 0, now)
            schedule.redefine(planting)
        others = self._others(schedule, heir, planting.renamed_from)
        self._take_freeze(schedule, others)
        schedule.cursor = _cursor(schedule, before, heir, others, now)
        for one in others:
            schedule.take_over(one)
        schedule.successor = ""
        schedule.declared = now
        return _planted(schedule, schedule.revision, now)

    def _make(self, planting: Planting, now: int) -> Schedule:
        made = Schedule(
            planting.name,
            planting.definition,
            planting.calendar,
            (planting.digest,),
            cursor=0,
            planted=now,
            declared=now,
        )
        self._schedules.schedules[made.name] = made
        return made

    def _heir_of(self, schedule: Schedule) -> Schedule:
        """Return the one that it was renamed to in the end; itself if it was not."""
        while (following := self._schedules.schedules.get(schedule.successor)) is not None:
            schedule = following
        return schedule

    def _others(self, schedule: Schedule, heir: Schedule, former: Sequence[str]) -> list[Schedule]:
        """Return those that it takes over from."""
        known = self._schedules.schedules
        found = [known[one] for one in former if one in known]
        if schedule.cursor:
            # What another one has taken over by now is that one's.
            found = [one for one in found if self._heir_of(one) is one]
        else:
            found = [self._heir_of(one) for one in found]
        return [one for one in dict.fromkeys((heir, *found)) if one is not schedule]

    def _take_freeze(self, schedule: Schedule, others: Sequence[Schedule]) -> None:
        """Leave it with the freeze that lasts longest; that of a name at rest does not count."""
        freezes = self._schedules.freezes
        if schedule.successor:
            freezes.pop(schedule.name, None)
        found = [freezes[one.name] for one in (schedule, *others) if one.name in freezes]
        if found:
            freezes[schedule.name] = max(
                found, key=lambda one: _NEVER if one.until is None else one.until
            )

    async def advance(self, move: Advance) -> Advanced:
        with self._lock:
            now = self.clock.wall()
            schedule = self._schedules.schedules.get(move.name)
            return (
                self._repeated(move, schedule, now)
                or self._refused(move, schedule, now)
                or self._skipped(move, now)
                or self._moved(move, now)
            )

    def _repeated(self, move: Advance, schedule: Schedule | None, now: int) -> Advanced | None:
        job = None if move.run is None else self._jobs.jobs.get(move.id)
        if job is not None:
            return _advanced("done", schedule, now, run=job.as_record())
        if schedule is not None and schedule.last_move[0] == move.id:
            _, outcome, reason = schedule.last_move
            return _advanced(outcome, schedule, now, reason=reason)
        return None

    def _refused(self, move: Advance, schedule: Schedule | None, now: int) -> Advanced | None:
        """Return why nothing changes, if so."""
        if schedule is None:
            return Advanced(outcome="unknown", now=now)
        has_passed = move.seen is not None and not move.seen == schedule.cursor <= move.to
        if schedule.revision != move.revision or schedule.successor or has_passed:
            return _advanced("passed", schedule, now)
        if move.due > now:
            return _advanced("early", schedule, now, ready_in=(move.due - now) / 1e6)
        if move.run is None:
            return None
        return self._nowhere(move, schedule, now) or self._resting(move, schedule, now)

    def _nowhere(self, move: Advance, schedule: Schedule, now: int) -> Advanced | None:
        if not move.replica:
            return None
        replica = self._alive(move.replica)
        if replica is None:
            return _advanced("gone", schedule, now)
        has_expired = replica.has_expired(now)
        return _advanced("held", schedule, now, reason="expired") if has_expired else None

    def _resting(self, move: Advance, schedule: Schedule, now: int) -> Advanced | None:
        last = self._jobs.jobs.get(schedule.last_job)
        if not move.rest or last is None:
            return None
        if last.state not in FINISHED:
            return _advanced("held", schedule, now, reason="running")
        ready_in = (last.finished + micros(move.rest) - now) / 1e6
        return _advanced("early", schedule, now, ready_in=ready_in) if ready_in > 0 else None

    def _skipped(self, move: Advance, now: int) -> Advanced | None:
        """Return why there is no run, if so."""
        if move.run is None:
            return None
        if not move.forced and self._schedules.is_frozen(move.name, move.to):
            return self._skip(move, "paused", now)
        live = self._unfinished_runs(move.name)
        here = [job for job in live if job.replica == move.replica]
        for bound, runs in ((move.limit, live), (move.own, here)):
            if bound is not None and len(runs) >= bound.most:
                return self._full(move, bound, runs, now)
        return None

    def _full(self, move: Advance, bound: Bound, runs: list[Job], now: int) -> Advanced:
        if bound.full == "skip":
            return self._skip(move, bound.reason, now)
        if bound.full == "cancel":
            for job in runs:
                self._cancel(job.id, bound.reason)
        schedule = self._schedules.schedules[move.name]
        return _advanced("held", schedule, now, reason=bound.reason)

    def _skip(self, move: Advance, reason: str, now: int) -> Advanced:
        skipped = Decision(outcome="skipped", reason=reason, first=move.to, last=move.to)
        return self._finish_move(move, skipped, now, reason=reason)

    def _moved(self, move: Advance, now: int) -> Advanced:
        if move.run is None:
            return self._finish_move(move, None, now)
        run = self._born(move.run, move, now)
        schedule = self._schedules.schedules[move.name]
        schedule.last_run, schedule.last_job = move.to, run.id
        ran = Decision(
            outcome="ran",
            reason="triggered" if move.forced else "",
            first=move.to,
            last=move.to,
            job=run.id,
            replica=move.replica,
        )
        return self._finish_move(move, ran, now, run=run)

    def _born(self, new: NewJob, move: Advance, now: int) -> JobRecord:
        job = Job(new, created=now, due=move.due if move.replica else now)
        self._jobs.add(job)
        if move.replica:
            replica = self._jobs.replicas[move.replica]
            schedule = self._schedules.schedules[move.name]
            job.fence = schedule.last_fence
            self._start(job, replica, now)
            job.claim_no = 0
            schedule.last_fence = job.fence
        else:
            self._tell_waiting(job, now)
        return job.as_record()

    def _finish_move(
        self,
        move: Advance,
        decision: Decision | None,
        now: int,
        *,
        reason: str = "",
        run: JobRecord | None = None,
    ) -> Advanced:
        is_skipped = decision is not None and decision.outcome == "skipped"
        outcome: Moved = "skipped" if is_skipped else "done"
        schedule = self._schedules.schedules[move.name]
        for one in (*move.passed, decision):
            if one is not None:
                schedule.remember(one, now)
        if move.seen is not None:
            schedule.cursor = move.to
        if not move.forced:
            schedule.declared = now
        schedule.last_move = (move.id, outcome, reason)
        return _advanced(outcome, schedule, now, reason=reason, run=run)

    def _unfinished_runs(self, name: str) -> list[Job]:
        """Return the unfinished runs of a schedule, in order of id."""
        jobs = (job for job in self._jobs.unfinished.values() if job.new.schedule == name)
        return sorted(jobs, key=lambda job: job.id)

    async def schedules(
        self, names: Sequence[str] | None = None, *, limit: int = 1000
    ) -> list[ScheduleRecord]:
        with self._lock:
            known = self._schedules.schedules
            everything = {EVERYTHING} & {*self._schedules.freezes}
            wanted = known if names is None else {*names} & {*known, *everything}
            return [self._look_at(name) for name in sorted(wanted)[:limit]]

    def _look_at(self, name: str) -> ScheduleRecord:
        freeze = self._schedules.freezes.get(name)
        schedule = self._schedules.schedules.get(name) or Schedule(name, b"", "", ("",), 0, 0, 0, 0)
        return schedule.as_record(len(self._unfinished_runs(name)), freeze)

    async def decisions(self, name: str, *, limit: int = DECISIONS_MAX) -> list[Decision]:
        with self._lock:
            schedule = self._schedules.schedules.get(name)
            return [] if schedule is None else list(schedule.decisions)[::-1][:limit]

    async def freeze(self, name: str, *, until: int | None = None, reason: str = "") -> bool:
        with self._lock:
            if name != EVERYTHING and name not in self._schedules.schedules:
                return False
            now = self.clock.wall()
            self._schedules.freezes[name] = Freeze(since=now, until=until, reason=reason)
            return True

    async def thaw(self, name: str) -> bool:
        with self._lock:
            now = self.clock.wall()
            freeze = self._schedules.freezes.get(name)
            if freeze is None or (freeze.until is not None and freeze.until <= now):
                return False
            self._schedules.freezes[name] = replace(freeze, until=now)
            return True

    async def prune_schedules(self, *, idle: float, limit: int = 1000) -> int:
        with self._lock:
            since = self.clock.wall() - micros(idle)
            known = self._schedules.schedules
            over = [one for one in known.values() if one.declared <= since]
            # A name at rest goes after its successor: it might come back with a roll-back.
            over = [one for one in over if one.successor not in known]
            over = [one for one in over if not self._unfinished_runs(one.name)][:limit]
            for one in over:
                del known[one.name]
                self._schedules.freezes.pop(one.name, None)
            return len(over)

    @property
    def _schedules(self) -> ScheduleSpace:
        return self._space.schedules


def _cursor(
    schedule: Schedule, before: str, heir: Schedule, others: Sequence[Schedule], now: int
) -> int:
    """Return where a schedule goes on that had the calendar `before`.

    That is now, unless somebody has decided about the ticks of the same calendar until lately.
    """
    same = [one.cursor for one in others if one.calendar == schedule.calendar]
    is_current = bool(schedule.cursor) and not schedule.successor
    is_forgotten = bool(heir.successor)  # whoever came after it is not there any more
    if is_forgotten or not (same or (is_current and before == schedule.calendar)):
        # Beside now, because the clock may have been set back.
        same += [now, *(one.cursor for one in others)]
    return max([schedule.cursor, *same])


def _planted(schedule: Schedule, revision: int, now: int) -> Planted:
    return Planted(revision=revision, cursor=schedule.cursor, last_run=schedule.last_run, now=now)


def _advanced(
    outcome: Moved,
    schedule: Schedule | None,
    now: int,
    *,
    reason: str = "",
    ready_in: float = 0.0,
    run: JobRecord | None = None,
) -> Advanced:
    if schedule is None:
        return Advanced(outcome=outcome, now=now, reason=reason, run=run)
    return Advanced(
        outcome=outcome,
        cursor=schedule.cursor,
        revision=schedule.revision,
        last_run=schedule.last_run,
        now=now,
        reason=reason,
        ready_in=ready_in,
        run=run,
    )
