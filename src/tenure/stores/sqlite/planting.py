"""Planting schedules in SQLite: which definition rules, and where its cursor begins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from tenure.core.durations import micros
from tenure.core.schedules import DECLARED_FOR, DIGESTS_MAX, Planted, Planting
from tenure.stores.sqlite import schedule_statements as sql
from tenure.stores.sqlite.transaction import Transaction, as_json

__all__ = ["plant"]

_digests = msgspec.json.Decoder(tuple[str, ...])


@dataclass(slots=True)
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
    successor: str
    definition: bytes


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
        self._known: dict[str, _Schedule] = {}
        # More than when it was declared.
        self._changed: dict[str, _Schedule] = {}
        self._declared: set[str] = set()
        self._read(name for one in plantings for name in (one.name, *one.renamed_from))
        self._read(one.successor for one in [*self._known.values()] if one.successor)

    def _read(self, names: Iterable[str]) -> None:
        unread = [name for name in dict.fromkeys(names) if name not in self._known]
        if not unread:
            return
        for row in self._tx.rows(sql.TO_PLANT, names=as_json(unread)):
            found = _Schedule(_digests.decode(row[0]), *row[1:])
            self._known[found.name] = found

    def plant(self, planting: Planting) -> Planted:
        schedule = self._known.get(planting.name) or self._make(planting)
        rules = self._is_in_use(schedule) and self._rules(schedule, planting)
        if rules:
            schedule.declared = self._tx.wall
            self._declared.add(schedule.name)
        return Planted(
            revision=schedule.revision if rules else 0,
            cursor=schedule.cursor,
            last_run=schedule.last_run,
            now=self._tx.wall,
        )

    def _make(self, planting: Planting) -> _Schedule:
        now = self._tx.wall
        before = next(
            (self._known[one] for one in planting.renamed_from if one in self._known), None
        )
        made = _Schedule(
            digests=(planting.digest,),
            name=planting.name,
            revision=1,
            cursor=now if before is None else before.cursor,
            declared=now,
            planted=now,
            last_run=0 if before is None else before.last_run,
            successor="",
            definition=planting.definition,
        )
        self._known[made.name] = self._changed[made.name] = made
        if before is not None:
            before.successor = made.name
            before.revision += 1
            self._changed[before.name] = before
            self._tx.change(sql.INHERIT_FREEZE, name=before.name, heir=made.name)
        return made

    def _is_in_use(self, schedule: _Schedule) -> bool:
        """Return whether it goes by this name; or does again, as nobody uses its new one."""
        if not schedule.successor:
            return True
        heir = self._known.get(schedule.successor)
        if heir is not None:
            if self._is_declared(heir):
                return False
            schedule.cursor = max(schedule.cursor, heir.cursor)
            schedule.last_run = max(schedule.last_run, heir.last_run)
        schedule.successor = ""
        self._changed[schedule.name] = schedule
        return True

    def _rules(self, schedule: _Schedule, planting: Planting) -> bool:
        """Return whether this definition rules, perhaps from now on."""
        digest = planting.digest
        if schedule.digests[-1] == digest:
            return True
        if digest in schedule.digests and self._is_declared(schedule):
            return False
        earlier = [one for one in schedule.digests if one != digest]
        schedule.digests = (*earlier, digest)[-DIGESTS_MAX:]
        schedule.definition = planting.definition
        schedule.revision += 1
        schedule.cursor = max(schedule.cursor, self._tx.wall)
        self._changed[schedule.name] = schedule
        return True

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
                    *(one.last_run, one.successor, one.definition, as_json(one.digests)),
                )
                for one in self._changed.values()
            ]
            tx.change_each(sql.PLANT, rows)
        if declared := [name for name in self._declared if name not in self._changed]:
            tx.change(sql.DECLARE, names=as_json(declared))
