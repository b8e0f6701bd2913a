"""Planting schedules in SQLite: which definition rules, and what a name takes over from others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tenure.core.durations import micros
from tenure.core.schedules import DECLARED_FOR, DIGESTS_MAX, Planted, Planting
from tenure.core.soundness import UNREADABLE
from tenure.stores.sqlite import schedule_statements as sql
from tenure.stores.sqlite.transaction import Row, Transaction, as_json

__all__ = ["plant"]

_digests = msgspec.json.Decoder(tuple[str, ...])


@dataclass(slots=True, eq=False)
class _Schedule:
    """A schedule as planting sees it."""

    digests: tuple[str, ...]
    """Of the definitions that have ruled, the present one last."""
    name: str
    revision: int
    cursor: int
    declared: int
    planted: int
    last_run: int
    last_job: str
    last_fence: int
    successor: str
    definition: bytes
    calendar: str

    def redefine(self, planting: Planting) -> None:
        """Let another definition rule from now on."""
        earlier = [one for one in self.digests if one != planting.digest]
        self.digests = (*earlier, planting.digest)[-DIGESTS_MAX:]
        self.definition = planting.definition
        self.revision += 1
        self.calendar = planting.calendar

    def take_over(self, other: _Schedule) -> None:
        """Have what another one had, which rests from now on. The cursor is `_cursor`'s."""
        if other.last_run > self.last_run:
            self.last_run, self.last_job = other.last_run, other.last_job
        self.last_fence = max(self.last_fence, other.last_fence)
        other.successor = self.name
        other.revision += 1


def plant(tx: Transaction, plantings: Sequence[Planting]) -> list[Planted]:
    """Declare schedules, and answer for each."""
    bed = _Bed(tx, plantings)
    answers = [bed.plant(one) for one in plantings]
    bed.write()
    return answers


class _Bed:
    """The schedules that one call is about. Read all at once, and written all at once."""

    def __init__(self, tx: Transaction, plantings: Sequence[Planting]) -> None:
        self._tx = tx
        # More than when it was declared.
        self._changed: dict[str, _Schedule] = {}
        self._declared: set[str] = set()
        names = {name for one in plantings for name in (one.name, *one.renamed_from)}
        rows = tx.rows(sql.TO_PLANT, names=as_json(list(names)))
        self._known = {one.name: one for row in rows if (one := self._readable(row)) is not None}

    def _readable(self, row: Row) -> _Schedule | None:
        """Return a schedule. One that cannot be read goes, with its decisions, and begins anew."""
        digests, *rest, is_sound = row
        try:
            known = _digests.decode(digests) if is_sound else ()
        except (ValueError, TypeError):
            known = ()
        if known:
            return _Schedule(known, *rest)
        tx, name = self._tx, rest[0]
        why = f"{UNREADABLE}; it begins anew"
        tx.damage.report("timer", str(name), why, "tenure_schedule")
        for statement in (sql.REMOVE_SCHEDULES, sql.REMOVE_DECISIONS):
            tx.change(statement, names=as_json([name]))
        return None

    def plant(self, planting: Planting) -> Planted:
        now = self._tx.wall
        schedule = self._known.get(planting.name) or self._make(planting)
        heir, before = self._heir_of(schedule), schedule.calendar
        rules = not self._yields(schedule, heir, planting) and self._rules(schedule, planting)
        if rules:
            others = self._others(schedule, heir, planting.renamed_from)
            schedule.cursor = _cursor(schedule, before, heir, others, now)
            self._take_over(schedule, others)
            schedule.declared = now
            self._declared.add(schedule.name)
        return Planted(
            revision=schedule.revision if rules else 0,
            cursor=schedule.cursor,
            last_run=schedule.last_run,
            now=now,
        )

    def _make(self, planting: Planting) -> _Schedule:
        now = self._tx.wall
        made = _Schedule(
            digests=(planting.digest,),
            name=planting.name,
            revision=1,
            cursor=0,
            declared=now,
            planted=now,
            last_run=0,
            last_job="",
            last_fence=0,
            successor="",
            definition=planting.definition,
            calendar=planting.calendar,
        )
        self._known[made.name] = self._changed[made.name] = made
        return made

    def _heir_of(self, schedule: _Schedule) -> _Schedule:
        """Return the one that it was renamed to in the end; itself if it was not."""
        # Names never make a circle, but a row that somebody has spoiled might.
        for _ in range(len(self._known)):
            following = self._known.get(schedule.successor)
            if following is None:
                break
            schedule = following
        return schedule

    def _yields(self, schedule: _Schedule, heir: _Schedule, planting: Planting) -> bool:
        """Return whether it goes by another name, which is in use and not a former one."""
        if heir is schedule or heir.name in planting.renamed_from:
            return False
        return self._is_declared(heir)

    def _rules(self, schedule: _Schedule, planting: Planting) -> bool:
        """Return whether this definition rules, perhaps from now on."""
        if schedule.digests[-1] == planting.digest:
            return True
        if planting.digest in schedule.digests and self._is_declared(schedule):
            return False
        schedule.redefine(planting)
        self._changed[schedule.name] = schedule
        return True

    def _others(
        self, schedule: _Schedule, heir: _Schedule, former: Sequence[str]
    ) -> list[_Schedule]:
        """Return those that it takes over from: none, if it did so before."""
        found = [self._known[one] for one in former if one in self._known]
        heirs = [self._heir_of(one) for one in found]
        if schedule.cursor:
            # It is there already: what another one has taken over stays with that one.
            heirs = [one for one, last in zip(found, heirs, strict=True) if one is last]
        return [one for one in dict.fromkeys((heir, *heirs)) if one is not schedule]

    def _take_over(self, schedule: _Schedule, others: Sequence[_Schedule]) -> None:
        """Let a schedule go on as those others, and as itself if it rested."""
        if not others and not schedule.successor:
            return
        self._inherit_freeze(schedule, others)
        for one in others:
            schedule.take_over(one)
        schedule.successor = ""
        self._changed |= {one.name: one for one in (schedule, *others)}

    def _inherit_freeze(self, schedule: _Schedule, others: Sequence[_Schedule]) -> None:
        """Keep the freeze that lasts longest. What a name was left with is no longer meant."""
        tx = self._tx
        if schedule.successor:
            tx.change(sql.REMOVE_FREEZES, names=as_json([schedule.name]))
        names = as_json([one.name for one in (schedule, *others)])
        tx.change(sql.INHERIT_FREEZE, heir=schedule.name, names=names)

    def _is_declared(self, schedule: _Schedule) -> bool:
        now = self._tx.wall
        if schedule.declared > now:  # the clock was set back
            schedule.declared = now
            self._declared.add(schedule.name)
        return schedule.declared + micros(DECLARED_FOR) > now

    def write(self) -> None:
        """Write what has changed. When it was declared alone need not reach the disk."""
        tx = self._tx
        if self._changed:
            tx.lasting = True
            rows = [
                (
                    *(tx.namespace, one.name, one.revision, one.cursor, one.declared, one.planted),
                    *(one.last_run, one.last_job, one.last_fence, one.successor),
                    *(one.definition, one.calendar, as_json(one.digests)),
                )
                for one in self._changed.values()
            ]
            tx.change_each(sql.PLANT, rows)
        if declared := [name for name in self._declared if name not in self._changed]:
            tx.change(sql.DECLARE, names=as_json(declared))


def _cursor(
    schedule: _Schedule, before: str, heir: _Schedule, others: Sequence[_Schedule], now: int
) -> int:
    """Return where a schedule goes on that had the calendar `before`; it never goes back.

    It begins at now if nobody was there to decide about the ticks of its calendar until lately,
    also if whoever did was forgotten since.
    """
    same = [one.cursor for one in others if one.calendar == schedule.calendar]
    is_at_work = schedule.cursor > 0 and not schedule.successor
    goes_on = same or (is_at_work and before == schedule.calendar)
    if goes_on and not heir.successor:
        return max([schedule.cursor, *same])
    return max([schedule.cursor, now, *(one.cursor for one in others)])  # the clock may go back
