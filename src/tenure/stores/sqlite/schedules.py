"""The schedule part of the SQLite store: documents, histories, and commits with runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, astuple, replace

from tenure.core.bounds import INSTANT_MAX, Fence, Instant, sound
from tenure.core.durations import micros
from tenure.core.jobs.records import COUNT_MAX, JobRecord, NewJob
from tenure.core.lease_policy import next_fence
from tenure.core.schedules.records import (
    BLOCKING_MAX,
    DECISIONS_MAX,
    DECLARED_ANEW_AFTER,
    Commit,
    CommitOutcome,
    Committed,
    Declared,
    Expected,
    ScheduleHead,
    ScheduleList,
    ScheduleRecord,
    TickLine,
    Write,
)
from tenure.stores.sqlite.claims import start, starting_replica
from tenure.stores.sqlite.connection import Part
from tenure.stores.sqlite.database import Mode
from tenure.stores.sqlite.inserts import NUMBERS, store
from tenure.stores.sqlite.records import get
from tenure.stores.sqlite.statements import Row, Transaction, as_json

__all__ = ["Schedules"]

# The fields of `_Schedule`.
_DOCUMENT = "name, version, declared, last_run, last_job, last_fence, ruler, standing, definition"

# By primary key, in its order.
NAMED = f"""
    SELECT {_DOCUMENT}
    FROM tenure_schedule
    WHERE namespace = :namespace AND name IN (SELECT value FROM json_each(:names))
    ORDER BY name
"""  # noqa: S608 - put together from constants

# By primary key, in its order.
PAGE = f"""
    SELECT {_DOCUMENT}
    FROM tenure_schedule
    WHERE namespace = :namespace AND name > :after
    ORDER BY name
    LIMIT :limit
"""  # noqa: S608 - put together from constants

# By primary key. Replaces the old row, even an unreadable one.
WRITE = """
    INSERT OR REPLACE INTO tenure_schedule (namespace, name, version, declared, last_run, last_job,
                                            last_fence, ruler, standing, definition)
    VALUES @rows
"""

# By primary key.
REMOVE = "DELETE FROM tenure_schedule WHERE namespace = :namespace AND name = :name"

# By primary key.
DECLARE = """
    UPDATE tenure_schedule
    SET declared = :wall
    WHERE namespace = :namespace AND name IN (SELECT value FROM json_each(:names))
"""

# The unfinished runs of a schedule. By tenure_live_run, a covering index.
RUNS = """
    SELECT id
    FROM tenure_live INDEXED BY tenure_live_run
    WHERE namespace = :namespace AND schedule = :name AND schedule <> ''
    LIMIT :limit
"""

# The runs on one replica. By tenure_live_run as well, and by tenure_replica_id.
RUNS_ON = """
    SELECT id
    FROM tenure_live INDEXED BY tenure_live_run
    WHERE namespace = :namespace AND schedule = :name AND schedule <> ''
      AND holder = (SELECT number FROM tenure_replica WHERE namespace = :namespace AND id = :on)
    LIMIT :limit
"""

# By primary key, from its end. A line with another number was changed by hand.
LINES = f"""
    SELECT number, "like", first, last, ticks, at, body
    FROM tenure_decision
    WHERE namespace = :namespace AND name = :name
      AND number > 0 AND number < {INSTANT_MAX} AND typeof(number) = 'integer'
    ORDER BY number DESC LIMIT :limit
"""  # noqa: S608 - put together from constants

# By primary key.
WRITE_LINE = """
    INSERT OR REPLACE INTO tenure_decision (namespace, name, number, "like", first, last, ticks, at,
                                            body)
    VALUES @rows
"""

# By primary key. All lines, unless there is a number.
REMOVE_LINES = """
    DELETE FROM tenure_decision
    WHERE namespace = :namespace AND name = :name AND number <= ifnull(:number, number)
"""


class Schedules(Part):
    """The schedule part of the contract. A commit is on the disk before its answer.

    A declaration need not be, because replicas repeat it.
    """

    async def read(
        self,
        names: Sequence[str] | None = None,
        *,
        after: str = "",
        limit: int = 1000,
        lines: int = 1,
    ) -> ScheduleList:
        def work(tx: Transaction) -> ScheduleList:
            if names is None:
                rows = tx.rows(PAGE, after=after, limit=limit)
            else:
                rows = tx.rows(NAMED, names=as_json(names))[:limit]
            records = [_as_record(tx, schedule, lines) for schedule in _read(tx, rows)]
            return ScheduleList(tx.wall, records)

        return await self._run(work, Mode.READ)

    async def declare(self, rulers: Sequence[tuple[str, str]]) -> Declared:
        def work(tx: Transaction) -> Declared:
            rows = tx.rows(NAMED, names=as_json([name for name, _ in rulers]))
            declared = {(row.name, row.ruler): row.declared for row in _read(tx, rows)}
            ruled = [ruler for ruler in rulers if ruler in declared]
            since = tx.wall - micros(DECLARED_ANEW_AFTER)
            # A declaration in the future was made before the clock was set back.
            due = [ruler[0] for ruler in ruled if not since < declared[ruler] <= tx.wall]
            if due:
                tx.change(DECLARE, names=as_json(due))
            return Declared(tx.wall, [ruler[0] for ruler in rulers if ruler not in declared])

        return await self._run(work)

    async def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        def work(tx: Transaction) -> list[Committed]:
            return [_Step(tx, commit).take() for commit in commits]

        return await self._run(work, Mode.DURABLE)


class _Schedule(Struct, kw_only=True, array_like=True):
    """A row of tenure_schedule."""

    name: str
    version: str = ""
    declared: Instant
    last_run: Instant = 0
    last_job: str = ""
    last_fence: Fence = 0
    ruler: str = ""
    standing: str = ""
    definition: str = ""


class _Step:
    """One commit: first the checks, in the order of the contract, then the changes.

    The transaction has the write lock from its beginning, so that nothing changes between the two.
    """

    def __init__(self, tx: Transaction, commit: Commit) -> None:
        self._tx = tx
        self._commit = commit
        names = {commit.name, *(expected.name for expected in commit.expects)}
        names.update(name for write in commit.writes for name in write.above)
        rows = tx.rows(NAMED, names=as_json([*names]))
        self._schedules = {schedule.name: schedule for schedule in _read(tx, rows)}
        self._changed: set[str] = set()
        self._holder: int | None = None  # the number of the replica on which the run starts

    def take(self) -> Committed:
        return self._repeated() or self._refused() or self._carried_out()

    def _answer(self, outcome: CommitOutcome, **details: Any) -> Committed:
        return Committed(outcome=outcome, now=self._tx.wall, **details)

    def _repeated(self) -> Committed | None:
        ids = [self._commit.id]
        if self._commit.run is None or self._tx.row(NUMBERS, ids=as_json(ids)) is None:
            return None
        (run,) = get(self._tx, ids)  # None if it cannot be read
        return self._answer("done", run=run)

    def _refused(self) -> Committed | None:
        commit = self._commit
        checked = [self._unlike(expected) for expected in commit.expects]
        heads = tuple(head for head in checked if head is not None)
        if heads:
            return self._answer("stale", heads=heads)
        if commit.not_before > self._tx.wall:
            return self._answer("early")
        if commit.run is None or not commit.start_on:
            return None
        replica = starting_replica(self._tx, commit.start_on)
        if replica is None:
            return self._answer("gone")
        self._holder, _, lives, _ = replica
        return None if lives else self._answer("expired")

    def _unlike(self, expected: Expected) -> ScheduleHead | None:
        """Return the head of a schedule if it is not as expected; else None."""
        schedule, silent_for = self._schedules.get(expected.name), expected.silent_for
        if schedule is None:
            return ScheduleHead(expected.name, "") if expected.version else None
        if silent_for is not None and schedule.declared > self._tx.wall:  # the clock was set back
            schedule.declared = self._tx.wall
            self._tx.change(DECLARE, names=as_json([schedule.name]))
        age = self._tx.wall - schedule.declared
        is_silent = silent_for is None or age >= micros(silent_for)
        if schedule.version == expected.version and is_silent:
            return None
        return ScheduleHead(*(getattr(schedule, field) for field in ScheduleHead.__struct_fields__))

    def _carried_out(self) -> Committed:
        """Make the changes, unless a room for the run is full and has no `instead`."""
        commit = self._commit
        for number, room in enumerate(commit.rooms):
            statement, limit = RUNS_ON if room.on else RUNS, max(room.most, BLOCKING_MAX)
            rows = self._tx.rows(statement, name=commit.name, on=room.on, limit=limit)
            if len(rows) < room.most:
                continue
            if room.instead is not None:
                self._change(room.instead)
                return self._answer("instead", room=number)
            runs = sorted(id_ for (id_,) in rows if isinstance(id_, str))
            return self._answer("full", room=number, blocking=tuple(runs[:BLOCKING_MAX]))
        return self._answer("done", run=self._change(commit.run_line, commit.run))

    def _change(self, last_line: TickLine | None, new: NewJob | None = None) -> JobRecord | None:
        """Make all changes and return the run. Each row is written once."""
        commit, tx = self._commit, self._tx
        for write in commit.writes:
            self._apply(write)
        # Without a row of the schedule, only the run is stored.
        schedule = self._schedules.get(commit.name) or _Schedule(name=commit.name, declared=tx.wall)
        if commit.declares:
            schedule.declared = tx.wall
            self._changed.add(commit.name)
        run = None if new is None else self._make_run(new, schedule)
        changed = self._changed & self._schedules.keys()
        tx.change_each(WRITE, [(tx.namespace, *astuple(self._schedules[name])) for name in changed])
        lines = commit.lines if last_line is None else (*commit.lines, last_line)
        if lines and commit.name in self._schedules:
            _add_lines(tx, commit.name, lines)
        return run

    def _apply(self, write: Write) -> None:
        tx, name = self._tx, write.name
        if write.standing is None or name not in self._schedules:
            # An unknown one may exist and be unreadable.
            tx.change(REMOVE, name=name)
            tx.change(REMOVE_LINES, name=name, number=None)
            self._schedules.pop(name, None)
        if write.standing is None:
            return
        schedule = self._schedules.setdefault(name, _Schedule(name=name, declared=tx.wall))
        schedule.version, schedule.ruler = self._commit.id, write.ruler
        schedule.standing = write.standing
        if write.definition is not None:
            schedule.definition = write.definition
        for former in write.above:
            other = self._schedules.get(former, schedule)
            if other.last_run > schedule.last_run:
                schedule.last_run, schedule.last_job = other.last_run, other.last_job
            schedule.last_fence = max(schedule.last_fence, other.last_fence)
        self._changed.add(name)

    def _make_run(self, new: NewJob, schedule: _Schedule) -> JobRecord | None:
        commit, tx = self._commit, self._tx
        if self._holder is None:
            store(tx, [replace(new, at=tx.wall)])
        else:
            schedule.last_fence = next_fence(schedule.last_fence, 0, tx.wall)
            number = store(tx, [replace(new, at=commit.not_before)], quietly=True)
            # No claim has the number 0, so a repeated claim does not return this job.
            start(tx, [number], self._holder, claim_no=0, least=schedule.last_fence)
        schedule.last_run, schedule.last_job = commit.tick, new.id
        self._changed.add(schedule.name)
        (run,) = get(tx, [new.id])
        return run


def _add_lines(tx: Transaction, name: str, lines: Sequence[TickLine]) -> None:
    """Add lines to a history: merge lines with the same `like`, and remove the oldest."""
    row = tx.row(LINES, name=name, limit=1)
    first = 1 if row is None else row[0]
    newest = None if row is None else _read_line(tx, name, row)  # replaced if it cannot be read
    history = [] if newest is None else [newest]
    for line in lines:
        last = history[-1] if history else None
        if last is not None and line.like and line.like == last.like:
            # A line that was changed by hand must not overflow the sum.
            ticks = min(INSTANT_MAX, last.ticks + line.ticks)
            history[-1] = replace(last, last=line.last, ticks=ticks, at=tx.wall)
        else:
            history.append(replace(line, at=tx.wall))
    numbered = [(number, line) for number, line in enumerate(history, first) if line is not newest]
    rows = [(tx.namespace, name, number, *astuple(line)) for number, line in numbered]
    tx.change_each(WRITE_LINE, rows)
    if (forgotten := first + len(history) - 1 - DECISIONS_MAX) > 0:
        tx.change(REMOVE_LINES, name=name, number=forgotten)


def _as_record(tx: Transaction, schedule: _Schedule, lines: int) -> ScheduleRecord:
    live = tx.rows(RUNS, name=schedule.name, limit=COUNT_MAX)
    rows = tx.rows(LINES, name=schedule.name, limit=lines) if lines else []
    read = (_read_line(tx, schedule.name, row) for row in rows)
    history = tuple(line for line in read if line is not None)
    values = {field: value for field, value in asdict(schedule).items() if field != "last_fence"}
    return ScheduleRecord(**values, live=len(live), lines=history)


def _read(tx: Transaction, rows: Sequence[Row]) -> list[_Schedule]:
    """Return the readable schedules of these rows, and report the others."""
    table = "tenure_schedule"
    read = (tx.damage.read("timer", table, str(row[0]), sound, _Schedule, row) for row in rows)
    return [schedule for schedule in read if schedule is not None]


def _read_line(tx: Transaction, name: str, row: Row) -> TickLine | None:
    values = dict(zip(TickLine.__struct_fields__, row[1:], strict=True))
    return tx.damage.read("decision", "tenure_decision", name, sound, TickLine, values)
