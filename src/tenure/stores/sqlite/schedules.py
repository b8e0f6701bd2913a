"""Schedules in SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenure.core.durations import micros
from tenure.core.schedules import (
    DECISIONS_MAX,
    EVERYTHING,
    Advance,
    Advanced,
    Decision,
    Freeze,
    Planted,
    Planting,
    ScheduleRecord,
)
from tenure.core.soundness import sound
from tenure.stores.sqlite import schedule_statements as sql
from tenure.stores.sqlite.advancing import advance, as_decision
from tenure.stores.sqlite.database import Mode
from tenure.stores.sqlite.jobs import Jobs
from tenure.stores.sqlite.planting import plant
from tenure.stores.sqlite.transaction import Row, Transaction, as_json

__all__ = ["Schedules"]


class Schedules(Jobs):
    """The schedule part of the contract. Every move of a cursor is on the disk before its answer.

    That somebody still declares a schedule need not be: whoever does says so again.
    """

    async def plant(self, schedules: Sequence[Planting]) -> list[Planted]:
        return await self._run(lambda tx: plant(tx, schedules))

    async def advance(self, move: Advance) -> Advanced:
        return await self._run(lambda tx: advance(tx, move), Mode.DURABLE)

    async def schedules(
        self, names: Sequence[str] | None = None, *, limit: int = 1000
    ) -> list[ScheduleRecord]:
        return await self._run(lambda tx: _look_at(tx, names, limit), Mode.READ)

    async def decisions(self, name: str, *, limit: int = DECISIONS_MAX) -> list[Decision]:
        def work(tx: Transaction) -> list[Decision]:
            rows = tx.rows(sql.DECISIONS, name=name, limit=limit)
            found = (_decision_in(tx, name, row) for row in rows)
            return [decision for decision in found if decision is not None]

        return await self._run(work, Mode.READ)

    async def freeze(self, name: str, *, until: int | None = None, reason: str = "") -> bool:
        def work(tx: Transaction) -> bool:
            if name != EVERYTHING and tx.row(sql.IS_PLANTED, name=name) is None:
                return False
            return tx.change(sql.FREEZE, name=name, until=until, reason=reason) == 1

        return await self._run(work, Mode.DURABLE)

    async def thaw(self, name: str) -> bool:
        return await self._run(lambda tx: tx.change(sql.THAW, name=name) == 1, Mode.DURABLE)

    async def prune_schedules(self, *, idle: float, limit: int = 1000) -> int:
        # If a power loss undoes it, it is done again.
        return await self._run(lambda tx: _prune(tx, micros(idle), limit))


def _look_at(tx: Transaction, names: Sequence[str] | None, limit: int) -> list[ScheduleRecord]:
    if names is None:
        return _as_schedules(tx, tx.rows(sql.ALL_SCHEDULES, limit=limit))
    wanted = as_json(list(dict.fromkeys(names)))
    found = _as_schedules(tx, tx.rows(sql.SCHEDULES, names=wanted, limit=limit))
    if EVERYTHING in names and (row := tx.row(sql.FREEZE_OF, name=EVERYTHING)):
        freeze = tx.damage.read("timer", "tenure_freeze", EVERYTHING, _as_freeze, row)
        everything = ScheduleRecord(
            name=EVERYTHING,
            revision=0,
            definition=b"",
            cursor=0,
            planted=0,
            declared=0,
            freeze=freeze,
        )
        found = sorted([everything, *found], key=lambda one: one.name)
    return found[:limit]


def _as_schedules(tx: Transaction, rows: Sequence[Row]) -> list[ScheduleRecord]:
    found = []
    for row in rows:
        name = str(row[0])
        latest = None if row[13] is None else _decision_in(tx, name, row[13:])
        read = tx.damage.read("timer", "tenure_schedule", name, _as_schedule, row, latest)
        if read is not None:
            found.append(read)
    return found


def _decision_in(tx: Transaction, name: str, row: Row) -> Decision | None:
    return tx.damage.read("decision", "tenure_decision", name, as_decision, row)


def _as_schedule(row: Row, latest: Decision | None) -> ScheduleRecord:
    name, revision, definition, cursor, last_run, last_job, live, planted, declared, *rest = row
    successor, freeze = rest[0], rest[1:4]
    return sound(
        ScheduleRecord,
        {
            "name": name,
            "revision": revision,
            "definition": definition,
            "cursor": cursor,
            "last_run": last_run,
            "last_job": last_job,
            "live": live,
            "planted": planted,
            "declared": declared,
            "successor": successor,
            "freeze": None if freeze[0] is None else _as_freeze(freeze),
            "latest": latest,
        },
    )


def _as_freeze(row: Sequence[Any]) -> Freeze:
    since, until, reason = row
    return sound(Freeze, {"since": since, "until": until, "reason": reason})


def _prune(tx: Transaction, idle: int, limit: int) -> int:
    names = [name for (name,) in tx.rows(sql.IDLE, since=tx.wall - idle, limit=limit)]
    if names:
        listed = as_json(names)
        for statement in (sql.REMOVE_SCHEDULES, sql.REMOVE_DECISIONS, sql.REMOVE_FREEZES):
            tx.change(statement, names=listed)
    return len(names)
