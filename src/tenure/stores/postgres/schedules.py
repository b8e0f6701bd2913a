"""Schedules in PostgreSQL: one statement for each call; what it does stands in sql/3_*.sql."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from tenure.core.durations import micros
from tenure.core.model import Topic
from tenure.core.records import COUNT_MAX
from tenure.core.schedules import (
    DECISIONS_MAX,
    DECLARED_FOR,
    DIGESTS_MAX,
    Advance,
    Advanced,
    Decision,
    Planted,
    Planting,
    ScheduleRecord,
)
from tenure.core.soundness import UNREADABLE
from tenure.stores.postgres.connection import Connection
from tenure.stores.postgres.pool import Row
from tenure.stores.postgres.schedule_rows import (
    as_advanced,
    as_decision,
    as_schedule,
    move_argument,
    plantings_argument,
)

__all__ = ["Schedules"]

_PLANT = "SELECT * FROM tenure.schedule_plant_v1($1, $2, $3, $4, $5)"
# The run is read by a function of its own, which sees what the move has done: it begins later.
_ADVANCE = """
SELECT a.*, r.*
FROM tenure.schedule_advance_v1($1, $2, $3, $4) AS a
LEFT JOIN LATERAL tenure.job_get_v2($1, CASE WHEN a.has_run THEN ARRAY[$5] ELSE '{}' END) AS r
    ON true
"""
_LIST = "SELECT * FROM tenure.schedule_list_v1($1, $2, $3, $4)"
_DECISIONS = "SELECT * FROM tenure.schedule_decisions_v1($1, $2, $3)"
_FREEZE = "SELECT tenure.schedule_freeze_v1($1, $2, $3, $4, $5)"
_THAW = "SELECT tenure.schedule_thaw_v1($1, $2, $3)"
_PRUNE = "SELECT tenure.schedule_prune_v1($1, $2, $3, $4)"

_DECLARED_FOR: Final = micros(DECLARED_FOR)


class Schedules(Connection):
    """The schedule part of the contract."""

    async def plant(self, schedules: Sequence[Planting]) -> list[Planted]:
        if not schedules:
            return []
        rows: list[Row] = []
        while not rows:  # somebody else has changed one of them at this very moment
            rows = await self._fetch(
                _PLANT,
                self.namespace,
                plantings_argument(schedules),
                _DECLARED_FOR,
                DIGESTS_MAX,
                self.clock.for_server(),
                about=[("schedule", [schedule.name for schedule in schedules])],
            )
        for schedule, row in zip(schedules, rows, strict=True):
            if row["anew"]:
                why = f"{UNREADABLE}; it begins anew"
                self.damage.report("timer", schedule.name, why, "tenure.schedule")
        return [
            Planted(
                revision=row["revision"],
                cursor=row["cursor"],
                last_run=row["last_run"],
                now=row["now"],
            )
            for row in rows
        ]

    async def advance(self, move: Advance) -> Advanced:
        told = self.clock.for_server()
        [row] = await self._fetch(
            _ADVANCE,
            self.namespace,
            move_argument(move),
            DECISIONS_MAX,
            told,
            move.id,
            about=[("schedule", [move.name]), ("replica", [move.replica]), ("job", [move.id])],
        )
        answer = as_advanced(row)
        topics: list[Topic] = [("replica", replica) for replica in row["replicas"]]
        topics += [("job", id_) for id_ in row["cancelled"]]
        if answer.run is not None and answer.run.state == "waiting":
            topics.append(("queue", answer.run.queue))
        self._tell(topics)
        return answer

    async def schedules(
        self, names: Sequence[str] | None = None, *, limit: int = 1000
    ) -> list[ScheduleRecord]:
        wanted = None if names is None else list(names)
        about = [("schedule", wanted or ())]
        rows = await self._fetch(_LIST, self.namespace, wanted, limit, COUNT_MAX, about=about)
        found = (self._schedule_in(row) for row in rows)
        return [schedule for schedule in found if schedule is not None]

    def _schedule_in(self, row: Row) -> ScheduleRecord | None:
        latest = None if row["outcome"] is None else self._decision_in(row["name"], row)
        read = partial(as_schedule, row, latest)
        return self.damage.read("timer", "tenure.schedule", row["name"], read)

    def _decision_in(self, name: str, row: Row) -> Decision | None:
        where = "tenure.schedule_decision"
        return self.damage.read("decision", where, name, as_decision, row)

    async def decisions(self, name: str, *, limit: int = DECISIONS_MAX) -> list[Decision]:
        about = [("schedule", [name])]
        rows = await self._fetch(_DECISIONS, self.namespace, name, limit, about=about)
        found = (self._decision_in(name, row) for row in rows)
        return [decision for decision in found if decision is not None]

    async def freeze(self, name: str, *, until: int | None = None, reason: str = "") -> bool:
        told = self.clock.for_server()
        [[frozen]] = await self._fetch(
            _FREEZE, self.namespace, name, until, reason, told, about=[("schedule", [name])]
        )
        return bool(frozen)

    async def thaw(self, name: str) -> bool:
        told = self.clock.for_server()
        about = [("schedule", [name])]
        [[thawed]] = await self._fetch(_THAW, self.namespace, name, told, about=about)
        return bool(thawed)

    async def prune_schedules(self, *, idle: float, limit: int = 1000) -> int:
        told = self.clock.for_server()
        [[pruned]] = await self._fetch(_PRUNE, self.namespace, micros(idle), limit, told)
        return int(pruned)
