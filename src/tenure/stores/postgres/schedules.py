"""Schedules in PostgreSQL: one statement for each call; what it does stands in 3_schedules.sql."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tenure.core.durations import micros
from tenure.core.records import COUNT_MAX
from tenure.core.schedules.records import (
    BLOCKING_MAX,
    DECISIONS_MAX,
    DECLARED_ANEW_AFTER,
    Commit,
    Committed,
    Declared,
    ScheduleList,
    ScheduleRecord,
    TickLine,
)
from tenure.core.soundness import UNREADABLE, sound
from tenure.stores.postgres.connection import Connection
from tenure.stores.postgres.job_rows import commit_text, committed

__all__ = ["Schedules"]

_LIST = """
SELECT * FROM tenure.now_v1($1) AS now
LEFT JOIN tenure.schedule_list_v1($2, $3, $4, $5, $6) AS record ON true
"""
# Served by schedule_decision_pkey.
_DECISIONS = """
SELECT to_json(d) FROM tenure.schedule_decision d
WHERE d.namespace = $1 AND d.name = $2 ORDER BY d.number DESC LIMIT $3
"""
_DECLARE = "SELECT * FROM tenure.schedule_declare_v1($1, $2, $3, $4, $5)"
_COMMIT = """
SELECT c.damaged, c.answer, c.fence, (SELECT to_json(r) FROM tenure.job_get_v2($1, c.known) AS r)
FROM tenure.schedule_commit_v1($1, $2, $3, $4, $5, $6) AS c
"""


class Schedules(Connection):
    """The schedule part of the contract."""

    async def schedules(
        self, names: Sequence[str] | None = None, *, after: str = "", limit: int = 1000
    ) -> ScheduleList:
        wanted = None if names is None else list(names)
        arguments = (self.clock.for_server(), self.namespace, wanted, after, limit, COUNT_MAX)
        rows = await self._fetch(_LIST, *arguments, about=[("schedule", wanted or ())])
        found = [self._schedule_in(msgspec.json.decode(record)) for _, record in rows if record]
        return ScheduleList(rows[0]["now"], [record for record in found if record is not None])

    def _schedule_in(self, values: dict[str, Any]) -> ScheduleRecord | None:
        name, line = values["name"], values["latest"]
        values["latest"] = None if line is None else self._line_in(name, line)
        return self.damage.read("timer", "tenure.schedule", name, sound, ScheduleRecord, values)

    def _line_in(self, name: str, values: dict[str, Any]) -> TickLine | None:
        where = "tenure.schedule_decision"
        return self.damage.read("decision", where, name, sound, TickLine, values)

    async def decisions(self, name: str, *, limit: int = DECISIONS_MAX) -> list[TickLine]:
        about = [("schedule", [name])]
        rows = await self._fetch(_DECISIONS, self.namespace, name, limit, about=about)
        lines = [self._line_in(name, msgspec.json.decode(line)) for [line] in rows]
        return [line for line in lines if line is not None]

    async def declare(self, rulers: Sequence[tuple[str, str]]) -> Declared:
        names = [name for name, _ in rulers]
        arguments = (self.namespace, names, [ruler for _, ruler in rulers])
        anew, told = micros(DECLARED_ANEW_AFTER), self.clock.for_server()
        [row] = await self._fetch(_DECLARE, *arguments, anew, told, about=[("schedule", names)])
        self._report(row["damaged"])
        return Declared(row["now"], row["lost"])

    async def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        names = dict.fromkeys(commit.name for commit in commits)
        names |= dict.fromkeys(write.name for commit in commits for write in commit.writes)
        texts = [commit_text(commit) for commit in commits]
        arguments = (self.namespace, [*names], texts, DECISIONS_MAX, BLOCKING_MAX)
        about = [("schedule", names), ("job", [commit.id for commit in commits])]
        about += [("replica", [commit.born_on for commit in commits])]
        rows = await self._fetch(_COMMIT, *arguments, self.clock.for_server(), about=about)
        self._report(rows[0]["damaged"] if rows else None)
        answers = [committed(commit, *row[1:]) for commit, row in zip(commits, rows, strict=True)]
        runs = [answer.run for answer in answers if answer.run is not None]
        self._tell([("queue", run.queue) for run in runs if run.state == "waiting"])
        return answers

    def _report(self, damaged: Sequence[str] | None) -> None:
        for name in damaged or ():
            self.damage.report("timer", name, UNREADABLE, "tenure.schedule")
