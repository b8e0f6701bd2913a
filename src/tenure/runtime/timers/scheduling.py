"""Changes schedules in a store: load, decide, commit; decide again if the schedule has changed.

`core.schedules` decides; the store compares versions and writes. The last known state of each
schedule is cached, so that a tick costs one call. If the cache is out of date, the store rejects
the commit as stale and returns the current state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from msgspec.structs import replace

from tenure.core.ids import JobIds
from tenure.core.jobs.records import BATCH_MAX, JobRecord
from tenure.core.schedules import pauses
from tenure.core.schedules.documents import EVERYTHING, Schedule, is_frozen
from tenure.core.schedules.pauses import Change, seconds_ahead
from tenure.core.schedules.records import Commit, Committed, ScheduleHead, ScheduleRecord
from tenure.core.schedules.registration import Registered, Registration, names_to_read, register
from tenure.core.schedules.ticks import (
    Advance,
    Advanced,
    Move,
    advance,
    after_commit,
    outcome_of,
)
from tenure.errors import StoreUnavailable
from tenure.observe.events import Events
from tenure.runtime.attempts.job_ends import report_cancelled
from tenure.runtime.timers.store_time import StoreTime
from tenure.runtime.timers.stored_schedules import PAGE, read_or_report
from tenure.stores.contract import Store

__all__ = ["Scheduling"]

Item = TypeVar("Item")

# Each stale answer means that another replica has made a change, so this many in a row are rare.
_TRIES: Final = 100
# After some of them it pauses for up to this many seconds, to let the others finish.
_PAUSE: Final = 0.05
_PATIENT_TRIES: Final = 3
# An instant that never comes.
_NEVER: Final = 2**62


class Scheduling:
    """The schedules of a store, for one replica or operator."""

    def __init__(
        self,
        store: Store,
        *,
        commit: Callable[[Commit], Awaitable[Committed]] | None = None,
        events: Events | None = None,
    ) -> None:
        """`commit` sends a commit, perhaps in a batch with others.

        `events` gets the jobs that ticks have cancelled.
        """
        self._store = store
        self._clock = store.clock
        self._ids = JobIds(store.clock)
        self._commit = commit or self._commit_alone
        self._events = events or Events()
        self.time = StoreTime(store.clock)
        self._heads: dict[str, ScheduleHead] = {}
        self._unanswered: dict[str, Move] = {}

    # Declaring.

    async def register(self, registrations: Sequence[Registration]) -> list[Registered]:
        """Register any number of definitions. Returns the standing of each."""
        registered: dict[str, Registered] = {}
        left = {registration.name: registration for registration in registrations}
        for number in range(_TRIES):
            await self._pause(number)
            for batch in _slices(list(left.values())):
                registered |= await self._register(batch)
            left = {
                name: registration for name, registration in left.items() if name not in registered
            }
            if not left:
                return [registered[registration.name] for registration in registrations]
        raise _contended(*left)

    async def declare(self, rulers: Sequence[tuple[str, str]]) -> list[str]:
        """Declare this replica's definitions (name, digest). Returns those that do not rule."""
        lost: list[str] = []
        for batch in _slices(rulers):
            sent = self._clock.boot()
            answer = await self._store.schedules.declare(batch)
            self.time.heard(answer.now, sent)
            lost += answer.lost
        return lost

    async def _register(self, registrations: Sequence[Registration]) -> dict[str, Registered]:
        """Try to register these definitions. Returns those without a conflicting change."""
        loaded, versions, now = await self._read_for(registrations)
        commits: list[tuple[Commit, Registered]] = []
        registered: dict[str, Registered] = {}
        for registration in registrations:
            id_ = self._ids.make()
            commit, result = register(registration, loaded, versions=versions, id_=id_, now=now)
            if commit is None:
                registered[registration.name] = result
            else:
                commits.append((commit, result))
        rulers = [(name, result.ruler) for name, result in registered.items() if result.ruler]
        for name in await self.declare(rulers) if rulers else ():
            del registered[name]
        answers = (
            await self._store.schedules.commit([commit for commit, _ in commits]) if commits else []
        )
        for (commit, result), answer in zip(commits, answers, strict=True):
            if _is_carried_out(commit, answer):
                registered[commit.name] = replace(result, now=answer.now)
            self._learn(commit, answer)
        return registered

    async def _read_for(
        self, registrations: Sequence[Registration]
    ) -> tuple[dict[str, Schedule | None], dict[str, str], int]:
        """Return all schedules that these registrations concern, their versions, and the store's
        time.

        A chain of renames needs another read for each name that the last read has revealed.
        """
        loaded: dict[str, Schedule | None] = {}
        versions: dict[str, str] = {}
        now = 0
        missing = {EVERYTHING, *_missing(registrations, loaded)}
        while missing:
            records, now = await self._read_heads(missing)
            loaded |= dict.fromkeys(missing)
            loaded |= {
                name: read_or_report(self._store, record) for name, record in records.items()
            }
            versions |= {name: record.version for name, record in records.items()}
            missing = _missing(registrations, loaded)
        return loaded, versions, now

    # Ticking.

    async def advance(self, move: Advance) -> Advanced:
        """Move a cursor and create the run; see `Advanced` for the answers.

        May be repeated after an error: the store recognises a move that it has carried out.
        """
        unanswered = self._unanswered.pop(move.id, None)
        if unanswered is None:
            decided = await self._decide(move)
        else:  # a repeat may only look up the outcome
            not_before = max(unanswered.commit.not_before, move.due)
            commit = replace(unanswered.commit, not_before=not_before)
            decided = replace(unanswered, commit=commit)
        for number in range(_TRIES):
            if isinstance(decided, Advanced):
                return decided
            await self._pause(number)
            answer = await self._send(move, decided)
            outcome = outcome_of(move, decided, answer, self._heads[move.name])
            if outcome is not None:
                await self._cancel(outcome)
                return outcome
            decided = await self._decide_by_heads(move, answer.now)
        raise _contended(move.name)

    async def look_up(self, move: Advance) -> Advanced:
        """Return the outcome of a move that was sent before, without carrying it out now.

        "early" with `ready_in` 0: it was not carried out and never will be.
        """
        # Only a commit recognises its own repeat. This one has an instant that never comes, so the
        # store cannot carry it out.
        answer = await self.advance(replace(move, due=_NEVER))
        return replace(answer, ready_in=0.0) if answer.outcome == "early" else answer

    async def _send(self, move: Advance, sent: Move) -> Committed:
        self._unanswered[move.id] = sent
        sent_at = self._clock.boot()
        answer = await self._commit(sent.commit)
        del self._unanswered[move.id]
        self.time.heard(answer.now, sent_at)
        self._learn(sent.commit, answer)
        return answer

    async def _decide(self, move: Advance) -> Move | Advanced:
        """Decide from the cached state. A refusal is decided from a fresh read."""
        if move.name in self._heads:
            decided = await self._decide_by_heads(move, 0)
            if isinstance(decided, Move):
                return decided
        _, now = await self._read_heads([move.name, EVERYTHING])
        return await self._decide_by_heads(move, now)

    async def _decide_by_heads(self, move: Advance, now: int) -> Move | Advanced:
        head, everything = self._heads.get(move.name), self._heads.get(EVERYTHING)
        last: JobRecord | None = None
        if move.rest and head is not None and head.last_job:
            [last] = await self._store.jobs.get([head.last_job])
            # Only the store knows whether that run ended while its clock was wrong.
            if last is not None and not now and seconds_ahead(last.finished, self.time.now()):
                now = (await self._store.ping()).now
        return advance(move, head, everything, last=last, now=now)

    async def _cancel(self, outcome: Advanced) -> None:
        """Cancel the runs that a tick replaces. If this fails, the next try cancels them."""
        # The tick waits in any case: a transaction of the handler may lock such a run for long.
        with suppress(StoreUnavailable):
            if outcome.blocking:
                await self._cancel_jobs(outcome.blocking, outcome.reason)

    async def _cancel_jobs(self, ids: Sequence[str], reason: str) -> None:
        jobs: Sequence[JobRecord | None] = [None] * len(ids)
        if self._events.wants_details:  # read before: they may be pruned at once
            # An event is worth less than the cancel, which follows in any case.
            with suppress(StoreUnavailable):
                jobs = await self._store.jobs.get(ids)
        answers = await self._store.jobs.cancel(ids, reason=reason)
        await report_cancelled(self._store, self._events, jobs, answers)

    def is_frozen(self, name: str, tick: int) -> bool:
        """Return whether a tick is paused, by the cached state."""
        return is_frozen(tick, self._heads.get(name), self._heads.get(EVERYTHING))

    # Operating.

    async def freeze(self, name: str, *, until: int | None = None, reason: str = "") -> bool:
        """Skip ticks before `until`. Returns False if there is no such schedule."""
        return await self._change(
            name, lambda change: pauses.freeze(change, until=until, reason=reason)
        )

    async def thaw(self, name: str) -> bool:
        """End a freeze. Returns False if there is none."""
        return await self._change(name, pauses.thaw)

    async def reset(self, name: str) -> bool:
        """Set back a cursor that lies in the store's future. Returns False if it does not."""
        return await self._change(name, pauses.reset)

    async def forget(self, *, idle: float) -> int:
        """Delete schedules that no replica has declared for `idle` seconds. Returns how many."""
        forgotten, after = 0, ""
        while True:
            page = await self._store.schedules.read(after=after, limit=PAGE)
            there = {record.name for record in page.records}
            changes = [self._change_of(record.name, record, page.now) for record in page.records]
            commits = [pauses.forget(change, idle=idle, others=there) for change in changes]
            idle_ones = [commit for commit in commits if commit is not None]
            for batch in _slices(idle_ones):
                answers = await self._store.schedules.commit(batch)
                forgotten += sum(answer.outcome == "done" for answer in answers)
            if not page.records:  # a page is shorter if some of its records cannot be read
                return forgotten
            after = page.records[-1].name

    async def _change(self, name: str, decide: Callable[[Change], Commit | None]) -> bool:
        """Change one schedule. Returns False if there is nothing to change."""
        id_ = self._ids.make()
        for number in range(_TRIES):
            await self._pause(number)
            records, now = await self._read_heads([name])
            record = records.get(name)
            if number and record is not None and record.version == id_:
                return True  # the driver repeats a call whose reply was lost
            commit = decide(replace(self._change_of(name, record, now), id=id_))
            if commit is None:
                return False
            [answer] = await self._store.schedules.commit([commit])
            self._learn(commit, answer)
            if _is_carried_out(commit, answer):
                return True
        raise _contended(name)

    def _change_of(self, name: str, record: ScheduleRecord | None, now: int) -> Change:
        return Change(
            name=name,
            schedule=None if record is None else read_or_report(self._store, record),
            version="" if record is None else record.version,
            id=self._ids.make(),
            now=now,
        )

    # The store.

    async def _commit_alone(self, commit: Commit) -> Committed:
        [answer] = await self._store.schedules.commit([commit])
        return answer

    async def _read_heads(self, names: Iterable[str]) -> tuple[dict[str, ScheduleRecord], int]:
        """Return the schedules that exist, and the store's time."""
        records: dict[str, ScheduleRecord] = {}
        now = 0
        for batch in _slices(sorted({*names})):
            sent = self._clock.boot()
            answer = await self._store.schedules.read(batch)
            now = answer.now
            self.time.heard(now, sent)
            records |= {record.name: record for record in answer.records}
            self._heads |= {name: _head_of(name, records.get(name)) for name in batch}
        return records, now

    def _learn(self, commit: Commit, answer: Committed) -> None:
        for head in answer.heads:
            self._heads[head.name] = head
        before = self._heads.get(commit.name) or ScheduleHead(commit.name, "")
        self._heads[commit.name] = after_commit(commit, answer, before)
        for write in commit.writes:
            # After a rename, read again before the next tick.
            if write.name != commit.name or write.above:
                self._heads.pop(write.name, None)

    async def _pause(self, number: int) -> None:
        if number >= _PATIENT_TRIES:
            await self._clock.sleep(_PAUSE * self._clock.random())


def _missing(registrations: Iterable[Registration], loaded: dict[str, Schedule | None]) -> set[str]:
    """Return the names that must be read before these registrations can be decided."""
    return {name for entry in registrations for name in names_to_read(entry, loaded)}


def _is_carried_out(commit: Commit, answer: Committed) -> bool:
    """Return whether a commit without a run took effect, now or by a call whose reply was lost."""
    is_repeat = any(head.name == commit.name and head.version == commit.id for head in answer.heads)
    return answer.outcome == "done" or is_repeat


def _head_of(name: str, record: ScheduleRecord | None) -> ScheduleHead:
    if record is None:
        return ScheduleHead(name, "")
    return ScheduleHead(
        name, record.version, record.standing, record.ruler, record.last_run, record.last_job
    )


def _slices(items: Sequence[Item]) -> list[Sequence[Item]]:
    return [items[first : first + BATCH_MAX] for first in range(0, len(items), BATCH_MAX)]


def _contended(*names: str) -> StoreUnavailable:
    msg = (
        f"schedule {', '.join(map(repr, names))} was changed by other processes {_TRIES} times "
        "while this one tried to change it. Try again."
    )
    return StoreUnavailable(msg)
